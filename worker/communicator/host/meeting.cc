#include "worker/communicator/host/meeting.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

static_assert(HostSpace::kMaxRanks <= CollectiveKey::kMaxRanks);

// The step of ranks that follow a root; the steps of collectives are below it.
constexpr int kFollows = 7;

}  // namespace

Meeting::Meeting(const HostSpace& space, const Waiter& waiter, const std::vector<int>& names,
                 int rank)
    : space_(space), waiter_(waiter), names_(names), rank_(rank) {}

absl::Status Meeting::Meet(const FlatCall& call, int stage, Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  if (turn_ + 1 > compared_ + kAhead) {
    COHORT_RETURN_IF_ERROR(CatchUp(turn_ + 1 - kAhead, call, deadline));
  }
  Arrive(call, stage);
  // At least one of the last ranks to arrive sees that all are here.
  if (waiter_.SomebodySleeps() && AllHere(turn_)) waiter_.WakeAllNow();
  COHORT_RETURN_IF_ERROR(AwaitAll(turn_, call, deadline));
  PrefetchToWrite(&space_.line(rank_, turn_ + 1));
  if (compared_ + 1 < turn_) COHORT_RETURN_IF_ERROR(CatchUp(turn_ - 1, call, deadline));
  compared_ = turn_;
  const std::optional<int> stranger = Stranger(turn_);
  if (!stranger.has_value()) return absl::OkStatus();
  // A rank that follows has gone on and does not get this error now, so it has no mark.
  if (SomebodyFollows(turn_)) return Differ(turn_, 0, *stranger);
  return MismatchError(Describe(space_.line(0, turn_).key), *stranger,
                       Describe(space_.line(*stranger, turn_).key));
}

absl::Status Meeting::Follow(const FlatCall& call, int root, Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  if (turn_ + 1 > compared_ + kAhead) {
    COHORT_RETURN_IF_ERROR(CatchUp(turn_ + 1 - kAhead, call, deadline));
  }
  Arrive(call, kFollows);
  // Another rank may wait for this rank alone.
  if (waiter_.SomebodySleeps()) waiter_.WakeAllNow();
  PrefetchToWrite(&space_.line(rank_, turn_ + 1));
  if (rank_ == root) return absl::OkStatus();
  const auto root_here = [&] { return Here(root, turn_); };
  if (!waiter_.Glance(root_here)) {
    RankSet missing;
    missing.Add(names_[static_cast<size_t>(root)]);
    const absl::Status status = waiter_.Await(root_here, deadline, [&] { return missing; });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(missing, call);
    if (!status.ok()) return status;
  }
  return space_.line(root, turn_).key == space_.line(rank_, turn_).key ? absl::OkStatus()
                                                                       : Differ(turn_, root, rank_);
}

void Meeting::Drain(Instant deadline) const {
  if (compared_ == turn_) return;
  waiter_.Await([this] { return AllHere(turn_); }, deadline, [this] { return Missing(turn_); })
      .IgnoreError();
}

void Meeting::Arrive(const FlatCall& call, int stage) {
  ++turn_;
  ArrivalLine& own = space_.line(rank_, turn_);
  own.key = KeyOf(call, stage);
  own.turn.store(turn_, std::memory_order_release);
}

absl::Status Meeting::CatchUp(uint64_t last, const FlatCall& call, Instant deadline) {
  // Compares every turn to which all ranks have come: reading many lines takes hardly longer than
  // one.
  while (compared_ < last || (compared_ < turn_ && AllHere(compared_ + 1))) {
    const uint64_t turn = compared_ + 1;
    COHORT_RETURN_IF_ERROR(AwaitAll(turn, call, deadline));
    compared_ = turn;
    const std::optional<int> stranger = Stranger(turn);
    // Only the first of several mismatches is reported.
    if (!stranger.has_value() || !deferred_error_.ok()) continue;
    // Skips a mismatch that this rank's own call has returned.
    const ArrivalLine& own = space_.line(rank_, turn);
    if (own.key.step() != kFollows) continue;
    const int root = own.key.root();
    if (root < space_.ranks() && space_.line(root, turn).key != own.key) continue;
    deferred_error_ = absl::InvalidArgumentError(absl::StrCat(
        "a call before this one, which was done itself: ", Differ(turn, 0, *stranger).message()));
  }
  return absl::OkStatus();
}

absl::Status Meeting::AwaitAll(uint64_t turn, const FlatCall& call, Instant deadline) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (waiter_.Glance([&] { return Here(rank, turn); })) continue;
    const absl::Status status =
        waiter_.Await([&] { return AllHere(turn); }, deadline, [&] { return Missing(turn); });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(Missing(turn), call);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool Meeting::AllHere(uint64_t turn) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank, turn)) return false;
  }
  return true;
}

RankSet Meeting::Missing(uint64_t turn) const {
  RankSet missing;
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank, turn)) missing.Add(names_[static_cast<size_t>(rank)]);
  }
  return missing;
}

std::optional<int> Meeting::Stranger(uint64_t turn) const {
  const ArrivalLine& first = space_.line(0, turn);
  for (int rank = 1; rank < space_.ranks(); ++rank) {
    if (space_.line(rank, turn).key != first.key) return rank;
  }
  return std::nullopt;
}

bool Meeting::SomebodyFollows(uint64_t turn) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (space_.line(rank, turn).key.step() == kFollows) return true;
  }
  return false;
}

absl::Status Meeting::Differ(uint64_t turn, int one, int other) const {
  const std::string first = Describe(space_.line(one, turn).key);
  const std::string second = Describe(space_.line(other, turn).key);
  return absl::InvalidArgumentError(
      absl::StrCat("ranks called different things: rank ", names_[static_cast<size_t>(one)], " ",
                   first, "; rank ", names_[static_cast<size_t>(other)], " ", second,
                   first == second ? ", of another shape" : ""));
}

absl::Status Meeting::GiveUp(const RankSet& missing, const FlatCall& call) const {
  const std::string text =
      absl::StrCat(Describe(call), ": rank ", missing.ToString(), " did not come");
  waiter_.SetPoison(absl::StrCat("rank ", names_[static_cast<size_t>(rank_)], " gave up ", text));
  return absl::DeadlineExceededError(text);
}

}  // namespace cohort::worker
