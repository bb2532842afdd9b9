#include "worker/communicator/host/shared/arrival_barrier.h"

#include <atomic>
#include <string>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "base/error_ranks.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

static_assert(HostSharedMemory::kMaxRanks <= CollectiveKey::kMaxRanks);

// The step of ranks that follow a root; the steps of collectives are below it.
constexpr int kFollows = 7;

}  // namespace

ArrivalBarrier::ArrivalBarrier(const HostSharedMemory& space, const FutexWaiter& waiter,
                               const std::vector<int>& names, int rank)
    : space_(space), waiter_(waiter), names_(names), rank_(rank) {}

absl::Status ArrivalBarrier::ArriveAndWait(const FlatCall& call, int stage, Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  if (sequence_ + 1 > compared_ + kMaxLead) {
    COHORT_RETURN_IF_ERROR(CatchUp(sequence_ + 1 - kMaxLead, call, deadline));
  }
  Arrive(call, stage);
  // At least one of the last ranks to arrive sees that all are here.
  if (waiter_.SomebodySleeps() && AllHere(sequence_)) waiter_.WakeAllNow();
  COHORT_RETURN_IF_ERROR(AwaitAll(sequence_, call, deadline));
  PrefetchToWrite(&space_.line(rank_, sequence_ + 1));
  return Compare(call, deadline);
}

absl::Status ArrivalBarrier::Compare(const FlatCall& call, Instant deadline) {
  if (compared_ + 1 < sequence_) COHORT_RETURN_IF_ERROR(CatchUp(sequence_ - 1, call, deadline));
  compared_ = sequence_;
  const int different = FirstDifferent(sequence_);
  if (ABSL_PREDICT_TRUE(different == kAllEqual && deferred_error_.ok())) return absl::OkStatus();
  // A rank that has gone on does not get this error now.
  if (different != kAllEqual && SomebodyWentOn(sequence_)) {
    Defer(sequence_, different);
    const std::string text = Differ(sequence_, 0, different);
    return deferred_at_ == sequence_ ? FirstMismatchError(text) : absl::InvalidArgumentError(text);
  }
  if (!deferred_error_.ok()) return std::exchange(deferred_error_, absl::OkStatus());
  return MismatchError(Describe(space_.line(0, sequence_).key), different,
                       Describe(space_.line(different, sequence_).key));
}

absl::Status ArrivalBarrier::CheckLeft() const {
  if (!waiter_.has_left()) return absl::OkStatus();
  for (const int rank : waiter_.Left().ToVector()) {
    if (!Here(rank, sequence_ + 1)) return waiter_.CauseOfLeaving(rank);
  }
  return absl::OkStatus();
}

absl::Status ArrivalBarrier::Follow(const FlatCall& call, int root, Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  if (sequence_ + 1 > compared_ + kMaxLead) {
    COHORT_RETURN_IF_ERROR(CatchUp(sequence_ + 1 - kMaxLead, call, deadline));
  }
  // All ranks have compared up to there before they arrive at this number, so all of them wait.
  if (ABSL_PREDICT_FALSE(!deferred_error_.ok()) && deferred_at_ + kMaxLead <= sequence_ + 1) {
    return ArriveAndWait(call, 0, deadline);
  }
  Arrive(call, kFollows);
  // Another rank may wait for this rank alone.
  if (waiter_.SomebodySleeps()) waiter_.WakeAllNow();
  PrefetchToWrite(&space_.line(rank_, sequence_ + 1));
  if (rank_ == root) return absl::OkStatus();
  const auto root_here = [&] { return Here(root, sequence_); };
  if (!waiter_.Glance(root_here)) {
    RankSet missing;
    missing.Add(names_[static_cast<size_t>(root)]);
    // A root that knows of a rank that left does not come.
    const absl::Status status = waiter_.Await(root_here, deadline, [&] {
      return waiter_.has_left() ? Missing(sequence_) : missing;
    });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(missing, call);
    if (!status.ok()) return status;
  }
  if (space_.line(root, sequence_).key == space_.line(rank_, sequence_).key) {
    return absl::OkStatus();
  }
  COHORT_RETURN_IF_ERROR(AwaitAll(sequence_, call, deadline));
  return Compare(call, deadline);
}

void ArrivalBarrier::Drain(Instant deadline) const {
  if (compared_ == sequence_) return;
  const auto missing = [this] { return Missing(sequence_).Minus(waiter_.Left()); };
  waiter_.Await([&] { return missing().empty(); }, deadline, missing).IgnoreError();
}

void ArrivalBarrier::Arrive(const FlatCall& call, int stage) {
  ++sequence_;
  ArrivalLine& own = space_.line(rank_, sequence_);
  own.key = KeyOf(call, stage);
  own.sequence.store(sequence_, std::memory_order_release);
}

absl::Status ArrivalBarrier::CatchUp(uint64_t last, const FlatCall& call, Instant deadline) {
  // Compares every sequence number at which all ranks have arrived: reading many lines takes hardly
  // longer than one.
  while (compared_ < last || (compared_ < sequence_ && AllHere(compared_ + 1))) {
    const uint64_t sequence = compared_ + 1;
    COHORT_RETURN_IF_ERROR(AwaitAll(sequence, call, deadline));
    compared_ = sequence;
    const int different = FirstDifferent(sequence);
    if (different != kAllEqual && SomebodyWentOn(sequence)) Defer(sequence, different);
  }
  return absl::OkStatus();
}

absl::Status ArrivalBarrier::AwaitAll(uint64_t sequence, const FlatCall& call,
                                      Instant deadline) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (waiter_.Glance([&] { return Here(rank, sequence); })) continue;
    const absl::Status status = waiter_.Await([&] { return AllHere(sequence); }, deadline,
                                              [&] { return Missing(sequence); });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(Missing(sequence), call);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

bool ArrivalBarrier::AllHere(uint64_t sequence) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank, sequence)) return false;
  }
  return true;
}

RankSet ArrivalBarrier::Missing(uint64_t sequence) const {
  RankSet missing;
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank, sequence)) missing.Add(names_[static_cast<size_t>(rank)]);
  }
  return missing;
}

int ArrivalBarrier::FirstDifferent(uint64_t sequence) const {
  const ArrivalLine& first = space_.line(0, sequence);
  for (int rank = 1; rank < space_.ranks(); ++rank) {
    if (space_.line(rank, sequence).key != first.key) return rank;
  }
  return kAllEqual;
}

bool ArrivalBarrier::SomebodyWentOn(uint64_t sequence) const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    const CollectiveKey key = space_.line(rank, sequence).key;
    if (key.step() != kFollows || key.root() >= space_.ranks()) continue;
    if (space_.line(key.root(), sequence).key == key) return true;
  }
  return false;
}

void ArrivalBarrier::Defer(uint64_t sequence, int different) {
  if (!deferred_error_.ok()) return;
  deferred_error_ = EarlierMismatchError(Differ(sequence, 0, different),
                                         Describe(space_.line(rank_, sequence).key));
  deferred_at_ = sequence;
}

std::string ArrivalBarrier::Differ(uint64_t sequence, int one, int other) const {
  const std::string first = Describe(space_.line(one, sequence).key);
  const std::string second = Describe(space_.line(other, sequence).key);
  return absl::StrCat("ranks called different things: rank ", names_[static_cast<size_t>(one)], " ",
                      first, "; rank ", names_[static_cast<size_t>(other)], " ", second,
                      first == second ? ", of another shape" : "");
}

absl::Status ArrivalBarrier::GiveUp(const RankSet& missing, const FlatCall& call) const {
  const std::string text =
      absl::StrCat(Describe(call), ": rank ", missing.ToString(), " did not come");
  waiter_.SetPoison(absl::StrCat("rank ", names_[static_cast<size_t>(rank_)], " gave up ", text));
  return MissingRanksError(text, missing.ToRanges());
}

}  // namespace cohort::worker
