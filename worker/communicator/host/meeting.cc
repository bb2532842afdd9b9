#include "worker/communicator/host/meeting.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
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
  ++turn_;
  ArrivalLine& own = space_.line(rank_, turn_);
  own.what = Encode(operation, stage);
  own.count = operation.count;
  own.scale = operation.reduction.scale;
  own.turn.store(turn_, std::memory_order_release);
  // Of those who come last, one at least sees that all are here.
  if (waiter_.SomebodySleeps() && AllHere()) waiter_.WakeAllNow();
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (waiter_.Glance([&] { return Here(rank); })) continue;
    const absl::Status status =
        waiter_.Await([this] { return AllHere(); }, deadline, [this] { return Missing(); });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(operation);
    if (!status.ok()) return status;
  }
  PrefetchToWrite(&space_.line(rank_, turn_ + 1));
  const ArrivalLine& first = space_.line(0, turn_);
  for (int rank = 1; rank < space_.ranks(); ++rank) {
    const ArrivalLine& other = space_.line(rank, turn_);
    if (other.what != first.what || other.count != first.count || other.scale != first.scale) {
      return Mismatch(rank);
    }
  }
  return absl::OkStatus();
}

bool Meeting::AllHere() const {
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank)) return false;
  }
  return true;
}

RankSet Meeting::Missing() const {
  RankSet missing;
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank)) missing.Add(names_[static_cast<size_t>(rank)]);
  }
  return missing;
}

absl::Status Meeting::GiveUp(const Operation& operation) const {
  const std::string text =
      absl::StrCat(worker::Describe(operation), ": rank ", Missing().ToString(), " did not come");
  waiter_.SetPoison(absl::StrCat("rank ", names_[static_cast<size_t>(rank_)], " gave up ", text));
  return absl::DeadlineExceededError(text);
}

absl::Status Meeting::Mismatch(int rank) const {
  return MismatchError(Describe(space_.line(0, turn_)), rank, Describe(space_.line(rank, turn_)));
}

}  // namespace cohort::worker
