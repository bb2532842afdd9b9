// The ranks that are missing in operations on tensors. The coordinator takes no part in those: it
// combines the last reports of all ranks, which come with their keep-alives.
#ifndef COHORT_COORDINATOR_CORE_MEMBERS_TENSOR_WAITS_H_
#define COHORT_COORDINATOR_CORE_MEMBERS_TENSOR_WAITS_H_

#include "base/clock.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/members/group_context.h"

namespace cohort::coordinator {

// Fills `tensor_waits`, `ranks`, `unanswered` and `unknown`. Lists an operation that a rank is in
// if another rank has not begun it, is waited for, or owes a report. Lists other operations once
// they take long. An operation that began just before its report counts as moving and is not
// listed.
void DescribeTensorWaits(Instant now, const GroupContext& context, WhoIsMissingReply& reply);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_MEMBERS_TENSOR_WAITS_H_
