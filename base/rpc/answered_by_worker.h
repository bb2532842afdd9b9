// Tells a worker's gRPC status from one of the transport.
#ifndef COHORT_BASE_RPC_ANSWERED_BY_WORKER_H_
#define COHORT_BASE_RPC_ANSWERED_BY_WORKER_H_

namespace cohort {

// Trailing metadata of each answer of a worker. A status without it comes from the transport,
// whatever its code: no worker has answered.
inline constexpr char kAnsweredKey[] = "cohort-answered";

}  // namespace cohort

#endif  // COHORT_BASE_RPC_ANSWERED_BY_WORKER_H_
