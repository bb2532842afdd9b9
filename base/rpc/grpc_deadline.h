// Deadlines for gRPC that follow the steady clock. A deadline on the calendar clock ends early or
// late when that clock is set.
#ifndef COHORT_BASE_RPC_GRPC_DEADLINE_H_
#define COHORT_BASE_RPC_GRPC_DEADLINE_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace cohort {

// Returns a deadline for ClientContext::set_deadline or Server::Shutdown. A duration of more than a
// year counts as a year.
gpr_timespec GrpcDeadline(absl::Duration from_now);

// Returns the time until `deadline`, for example ServerContext::raw_deadline(). The result is
// infinite if the call has no deadline.
absl::Duration TimeLeft(gpr_timespec deadline);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_GRPC_DEADLINE_H_
