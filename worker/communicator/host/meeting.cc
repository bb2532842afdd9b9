#include "worker/communicator/host/meeting.h"

#include <atomic>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"

namespace cohort::worker {
namespace {

uint64_t Encode(const Operation& operation, int stage) {
  uint64_t what = static_cast<uint64_t>(operation.verb) |
                  static_cast<uint64_t>(operation.type) << 8 | static_cast<uint64_t>(stage) << 24;
  if (Reduces(operation.verb)) what |= static_cast<uint64_t>(operation.reduction.op) << 16;
  if (HasRoot(operation.verb)) what |= static_cast<uint64_t>(operation.root) << 32;
  return what;
}

// Whatever another process has written there.
std::string Describe(const ArrivalLine& line) {
  Operation operation;
  operation.verb = static_cast<Verb>(line.what & 0xFF);
  operation.count = line.count;
  const int type = static_cast<int>(line.what >> 8 & 0xFF);
  const int op = static_cast<int>(line.what >> 16 & 0xFF);
  operation.root = static_cast<int>(line.what >> 32);
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
    if (Here(rank)) continue;
    const absl::Status status = waiter_.Await([this] { return AllHere(); }, deadline);
    if (absl::IsDeadlineExceeded(status)) return GiveUp(operation);
    if (!status.ok()) return status;
  }
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

absl::Status Meeting::GiveUp(const Operation& operation) const {
  RankSet missing;
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (!Here(rank)) missing.Add(names_[static_cast<size_t>(rank)]);
  }
  const std::string text =
      absl::StrCat(worker::Describe(operation), ": rank ", missing.ToString(), " did not come");
  waiter_.SetPoison(absl::StrCat("rank ", names_[static_cast<size_t>(rank_)], " gave up ", text));
  return absl::DeadlineExceededError(text);
}

absl::Status Meeting::Mismatch(int rank) const {
  return absl::InvalidArgumentError(absl::StrCat(
      "ranks called different things: rank ", names_[0], " ", Describe(space_.line(0, turn_)),
      "; rank ", names_[static_cast<size_t>(rank)], " ", Describe(space_.line(rank, turn_))));
}

}  // namespace cohort::worker
