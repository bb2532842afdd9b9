// The memory that a call may make the coordinator keep, known before the call is handled.
#ifndef COHORT_COORDINATOR_CORE_CALL_COST_H_
#define COHORT_COORDINATOR_CORE_CALL_COST_H_

#include <cstdint>

#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/memory_account.h"

namespace cohort::coordinator {

struct CallCost {
  MemoryKind kind = MemoryKind::kCalls;
  int64_t bytes = 0;  // at most; 0: no memory, or the part that keeps it checks the limit
  Share share = Share::kGoingOn;
};

// For calls that bring values or create groups and stores, the parts that keep those check the
// limit, after they have answered repeats. Calls that free memory cost nothing: a full coordinator
// takes them.
CallCost CostOf(const Call& call);

// Whether max_tenant_waiters may refuse the call. It does not refuse calls that may end the waits
// of other calls, such as sends and barriers, nor watches, which max_tenant_streams bounds.
bool NeedsWaiterQuota(const Call& call);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_CALL_COST_H_
