// Who is missing in operations on tensors. The coordinator takes no part in them: it knows what each rank last reported
// with a keep-alive, and puts that together.
#ifndef COHORT_COORDINATOR_CORE_TENSOR_WAITS_H_
#define COHORT_COORDINATOR_CORE_TENSOR_WAITS_H_

#include "base/clock.h"
#include "coordinator/core/group_context.h"
#include "coordinator/core/reply.h"

namespace cohort::coordinator {

// Fills `tensor_waits`, `ranks`, `unanswered` and `unknown`. An operation is listed if a rank is in it, and if another
// rank has not come to it, or is waited for, or does not answer; otherwise once it takes long. An operation that began
// just before the report moves, and is not listed.
void DescribeTensorWaits(Instant now, const GroupContext& context, WhoIsMissingReply& reply);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TENSOR_WAITS_H_
