// Operations that took something and acknowledged it, or waited in vain: a copy of such a call that
// comes late must not take anything. It is answered like one that waited in vain.
#ifndef COHORT_COORDINATOR_CORE_SPENT_OPERATIONS_H_
#define COHORT_COORDINATOR_CORE_SPENT_OPERATIONS_H_

#include <cstdint>
#include <deque>

#include "absl/container/flat_hash_set.h"
#include "base/id128.h"

namespace cohort::coordinator {

// The last ones only, and of this process only: a copy does not outlive the connection it travels
// on.
class SpentOperations {
 public:
  // An empty id is fine.
  void Add(const Id128& operation, int64_t max_kept) {
    if (operation.empty() || !known_.insert(operation).second) return;
    order_.push_back(operation);
    while (static_cast<int64_t>(order_.size()) > max_kept) {
      known_.erase(order_.front());
      order_.pop_front();
    }
  }
  bool Contains(const Id128& operation) const {
    return !operation.empty() && known_.contains(operation);
  }
  void Clear() {
    known_.clear();
    order_.clear();
  }

 private:
  absl::flat_hash_set<Id128> known_;
  std::deque<Id128> order_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_SPENT_OPERATIONS_H_
