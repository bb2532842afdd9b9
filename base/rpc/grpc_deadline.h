// gRPC's deadlines by the steady clock. A deadline of the calendar clock ends early or late when
// somebody sets the calendar.
#ifndef COHORT_BASE_RPC_GRPC_DEADLINE_H_
#define COHORT_BASE_RPC_GRPC_DEADLINE_H_

#include "absl/time/time.h"
#include "grpc/support/time.h"

namespace cohort {

// For ClientContext::set_deadline and Server::Shutdown. More than a year means a year.
gpr_timespec GrpcDeadline(absl::Duration from_now);

// Until a deadline, such as ServerContext::raw_deadline(); infinite when it is none.
absl::Duration TimeLeft(gpr_timespec deadline);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_GRPC_DEADLINE_H_
