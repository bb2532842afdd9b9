// Operations that took an object and acknowledged it, or that timed out. A late copy of such a call
// takes nothing and is answered as if it had timed out.
#ifndef COHORT_COORDINATOR_CORE_IDEMPOTENCY_COMPLETED_OPERATIONS_H_
#define COHORT_COORDINATOR_CORE_IDEMPOTENCY_COMPLETED_OPERATIONS_H_

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "base/id128.h"
#include "coordinator/core/interface/memory_account.h"

namespace cohort::coordinator {

// Keeps the last operations only, and only in this process: a copy does not outlive its connection.
class CompletedOperations {
 public:
  explicit CompletedOperations(Tally& tally) : charge_(tally, MemoryKind::kAnswers) {}

  // Ignores an empty id.
  void Add(const Id128& operation, int64_t max_kept) {
    if (operation.empty() || !known_.insert(operation).second) return;
    order_.push_back(operation);
    charge_.Add(kCost);
    while (static_cast<int64_t>(order_.size()) > max_kept) {
      known_.erase(order_.front());
      order_.pop_front();
      charge_.Add(-kCost);
    }
  }
  bool Contains(const Id128& operation) const {
    return !operation.empty() && known_.contains(operation);
  }
  void Clear() {
    known_.clear();
    order_.clear();
    charge_.Set(0);
  }
  bool empty() const { return order_.empty(); }

 private:
  static constexpr int64_t kCost = sizeof(Id128) + SlotCost<Id128>();

  absl::flat_hash_set<Id128> known_;
  std::deque<Id128> order_;
  Charge charge_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_IDEMPOTENCY_COMPLETED_OPERATIONS_H_
