// Whose words a gRPC status is.
#ifndef COHORT_BASE_RPC_ANSWERED_H_
#define COHORT_BASE_RPC_ANSWERED_H_

namespace cohort {

// Trailing metadata of each answer that a worker itself gave. A status without it is the
// transport's, whatever its code: nobody there has spoken.
inline constexpr char kAnsweredKey[] = "cohort-answered";

}  // namespace cohort

#endif  // COHORT_BASE_RPC_ANSWERED_H_
