#include "worker/communicator/host/meeting.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

// From the lowest bits: verb 4, type 5, op 4, stage 3, root 16, tag 32.
static_assert(HostSpace::kMaxRanks <= 1 << 16);

uint64_t Encode(const Operation& operation, int stage) {
  uint64_t what = static_cast<uint64_t>(operation.verb) |
                  static_cast<uint64_t>(operation.type) << 4 | static_cast<uint64_t>(stage) << 13 |
                  static_cast<uint64_t>(operation.tag) << 32;
  if (Reduces(operation.verb)) what |= static_cast<uint64_t>(operation.reduction.op) << 9;
  if (HasRoot(operation.verb)) what |= static_cast<uint64_t>(operation.root) << 16;
  return what;
}

// Of those who follow: apart from the stages of operations.
constexpr int kFollows = 7;
int StageOf(const ArrivalLine& line) { return static_cast<int>(line.what >> 13 & 0x7); }
int RootOf(const ArrivalLine& line) { return static_cast<int>(line.what >> 16 & 0xFFFF); }

bool Same(const ArrivalLine& a, const ArrivalLine& b) {
  return a.what == b.what && a.count == b.count && a.scale == b.scale;
}

// Whatever another process has written there.
std::string Describe(const ArrivalLine& line) {
  Operation operation;
  operation.verb = static_cast<Verb>(line.what & 0xF);
  operation.count = line.count;
  const int type = static_cast<int>(line.what >> 4 & 0x1F);
  const int op = static_cast<int>(line.what >> 9 & 0xF);
  operation.root = static_cast<int>(line.what >> 16 & 0xFFFF);
  if (!IsDataType(type) || (Reduces(operation.verb) && !IsReduceOp(op))) {
    return NameOf(operation.verb);
  }
  operation.type = static_cast<DataType>(type);
  if (Reduces(operation.verb)) operation.reduction = {static_cast<ReduceOp>(op), line.scale};
  return Describe(operation);
}

}  // namespace

Meeting::Meeting(const HostSpace& space, const Waiter& waiter, const std::vector<int>& names,
                 int rank)
    : space_(space), waiter_(waiter), names_(names), rank_(rank) {}

absl::Status Meeting::Meet(const Operation& operation, int stage, Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  if (turn_ + 1 > compared_ + kAhead) {
    COHORT_RETURN_IF_ERROR(CatchUp(turn_ + 1 - kAhead, operation, deadline));
  }
  Arrive(operation, stage);
  // Of those who come last, one at least sees that all are here.
  if (waiter_.SomebodySleeps() && AllHere(turn_)) waiter_.WakeAllNow();
  COHORT_RETURN_IF_ERROR(AwaitAll(turn_, operation, deadline));
  PrefetchToWrite(&space_.line(rank_, turn_ + 1));
  if (compared_ + 1 < turn_) COHORT_RETURN_IF_ERROR(CatchUp(turn_ - 1, operation, deadline));
  compared_ = turn_;
  const std::optional<int> stranger = Stranger(turn_);
  if (!stranger.has_value()) return absl::OkStatus();
  // Who follows has gone on, and will not come to talk about it.
  if (SomebodyFollows(turn_)) return Differ(turn_, 0, *stranger);
  return MismatchError(Describe(space_.line(0, turn_)), *stranger,
                       Describe(space_.line(*stranger, turn_)));
}

absl::Status Meeting::Follow(const Operation& operation, int root, Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  if (turn_ + 1 > compared_ + kAhead) {
    COHORT_RETURN_IF_ERROR(CatchUp(turn_ + 1 - kAhead, operation, deadline));
  }
  Arrive(operation, kFollows);
  // Somebody may wait for this rank alone.
  if (waiter_.SomebodySleeps()) waiter_.WakeAllNow();
  PrefetchToWrite(&space_.line(rank_, turn_ + 1));
  if (rank_ == root) return absl::OkStatus();
  const auto root_here = [&] { return Here(root, turn_); };
  if (!waiter_.Glance(root_here)) {
    RankSet missing;
    missing.Add(names_[static_cast<size_t>(root)]);
    const absl::Status status = waiter_.Await(root_here, deadline, [&] { return missing; });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(missing, operation);
    if (!status.ok()) return status;
  }
  return Same(space_.line(root, turn_), space_.line(rank_, turn_)) ? absl::OkStatus()
                                                                   : Differ(turn_, root, rank_);
}

void Meeting::Settle(Instant deadline) const {
  if (compared_ == turn_) return;
  waiter_.Await([this] { return AllHere(turn_); }, deadline, [this] { return Missing(turn_); })
      .IgnoreError();
}

void Meeting::Arrive(const Operation& operation, int stage) {
  ++turn_;
  ArrivalLine& own = space_.line(rank_, turn_);
  own.what = Encode(operation, stage);
  own.count = operation.count;
  own.scale = operation.reduction.scale;
  own.turn.store(turn_, std::memory_order_release);
}

absl::Status Meeting::CatchUp(uint64_t last, const Operation& operation, Instant deadline) {
  // As many as have come: reading many lines at once takes hardly longer than reading one.
  while (compared_ < last || (compared_ < turn_ && AllHere(compared_ + 1))) {
    const uint64_t turn = compared_ + 1;
    COHORT_RETURN_IF_ERROR(AwaitAll(turn, operation, deadline));
    compared_ = turn;
    const std::optional<int> stranger = Stranger(turn);
    // Of several the first is told.
    if (!stranger.has_value() || !overdue_.ok()) continue;
    // Unless this rank was told then.
    const ArrivalLine& own = space_.line(rank_, turn);
    if (StageOf(own) != kFollows) continue;
    const int root = RootOf(own);
    if (root < space_.ranks() && !Same(space_.line(root, turn), own)) continue;
    overdue_ = absl::InvalidArgumentError(absl::StrCat(
        "a call before this one, which was done itself: ", Differ(turn, 0, *stranger).message()));
  }
  return absl::OkStatus();
}

absl::Status Meeting::AwaitAll(uint64_t turn, const Operation& operation, Instant deadline) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (waiter_.Glance([&] { return Here(rank, turn); })) continue;
    const absl::Status status =
        waiter_.Await([&] { return AllHere(turn); }, deadline, [&] { return Missing(turn); });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(Missing(turn), operation);
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
    if (!Same(first, space_.line(rank, turn))) return rank;
  }
  return std::nullopt;
}

bool Meeting::SomebodyFollows(uint64_t turn) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (StageOf(space_.line(rank, turn)) == kFollows) return true;
  }
  return false;
}

absl::Status Meeting::Differ(uint64_t turn, int one, int other) const {
  const std::string first = Describe(space_.line(one, turn));
  const std::string second = Describe(space_.line(other, turn));
  return absl::InvalidArgumentError(
      absl::StrCat("ranks called different things: rank ", names_[static_cast<size_t>(one)], " ",
                   first, "; rank ", names_[static_cast<size_t>(other)], " ", second,
                   first == second ? ", of another shape" : ""));
}

absl::Status Meeting::GiveUp(const RankSet& missing, const Operation& operation) const {
  const std::string text =
      absl::StrCat(worker::Describe(operation), ": rank ", missing.ToString(), " did not come");
  waiter_.SetPoison(absl::StrCat("rank ", names_[static_cast<size_t>(rank_)], " gave up ", text));
  return absl::DeadlineExceededError(text);
}

}  // namespace cohort::worker
