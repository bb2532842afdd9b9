// What a call may make the coordinator keep, known before it is handled.
#ifndef COHORT_COORDINATOR_CORE_CALL_COST_H_
#define COHORT_COORDINATOR_CORE_CALL_COST_H_

#include <cstdint>

#include "coordinator/core/account.h"
#include "coordinator/core/call.h"

namespace cohort::coordinator {

struct CallCost {
  MemoryKind kind = MemoryKind::kCalls;
  int64_t bytes = 0;  // at most; 0: nothing, or the part that keeps it checks
  Share share = Share::kGoingOn;
};

// Calls that bring values or create groups and stores are checked where those are kept, after the
// repeats that act no more. Calls that free something cost nothing: a full coordinator takes them.
CallCost CostOf(const Call& call);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_CALL_COST_H_
