// The order in which operations of several groups are issued to a device: the same on all devices
// that the groups have in common.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_ISSUE_ORDER_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_ISSUE_ORDER_H_

#include <cstdint>
#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort::worker {

// NCCL requires this order. Kernels of two groups that reach two devices in different orders may
// wait for each other, where a device does not run both at once. Ranks whose threads call several
// groups at the same time cannot know which order the others take. So, once all ranks of an
// operation have come, each device proposes a number larger than all that it knows. The largest
// proposal becomes the operation's number, and each device issues its operations in the order of
// their numbers (D. Skeen's algorithm for ordered messages to several receivers: Birman and Joseph,
// Reliable communication in the presence of failures, 1987). No rank waits for an operation whose
// ranks have not all come.
//
// Each object orders one device of this process. Thread-safe.
class IssueOrder {
 public:
  // Lives for ever.
  static IssueOrder& Of(int device);

  // A group that is on the device, as long as this lasts.
  class IssuingGroup {
   public:
    explicit IssuingGroup(int device) : order_(Of(device)) { order_.Count(1); }
    IssuingGroup(const IssuingGroup&) = delete;
    IssuingGroup& operator=(const IssuingGroup&) = delete;
    ~IssuingGroup() { order_.Count(-1); }
    // Whether there are others.
    bool is_one_of_many() const { return order_.groups() > 1; }
    IssueOrder& order() const { return order_; }

   private:
    IssueOrder& order_;
  };

  // An operation, from the proposal until it is issued or given up. Movable.
  class Ticket {
   public:
    Ticket(Ticket&& other) noexcept
        : order_(std::exchange(other.order_, nullptr)), number_(other.number_) {}
    Ticket& operator=(Ticket&&) = delete;
    ~Ticket() {
      if (order_ != nullptr) order_->Leave(number_);
    }

    int64_t proposed() const;
    // `agreed` is the largest number that the operation's devices propose. Returns when no
    // operation is to be issued before it. Errors: DEADLINE_EXCEEDED (another operation is not
    // issued), and those of `standing`, which is called now and then.
    absl::Status Await(int64_t agreed, absl::FunctionRef<absl::Status()> standing,
                       Instant deadline);

   private:
    friend class IssueOrder;
    Ticket(IssueOrder* order, int64_t number) : order_(order), number_(number) {}
    IssueOrder* order_;
    int64_t number_;  // of this object, on this device alone
  };
  // `key`: the group's, the same on all its ranks, and of no other group.
  Ticket Propose(uint64_t key);

 private:
  explicit IssueOrder(int device) : device_(device) {}
  void Count(int change);
  int groups() const;
  void Leave(int64_t number);

  // The order that is the same on all devices.
  using Position = std::pair<int64_t, uint64_t>;
  bool IsFirst(int64_t number) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int device_;
  mutable Mutex mutex_;
  CondVar changed_;
  int groups_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t clock_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t last_ ABSL_GUARDED_BY(mutex_) = 0;
  // Operations that are not issued yet: their positions, or the earliest positions that they may
  // get.
  std::map<int64_t, Position> pending_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_ISSUE_ORDER_H_
