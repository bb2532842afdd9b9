#include "client/parallel/collectives/by_parallel_mode.h"

#include "base/status_macros.h"

namespace cohort::parallel {

absl::StatusOr<Tensor> AllGather(const GroupOfMode& groups, ParallelMode mode, const Tensor& input,
                                 const AllGatherOptions& options) {
  COHORT_ASSIGN_OR_RETURN(client::Group* const group, groups(mode));
  return AllGather(*group, input, options);
}

absl::StatusOr<Tensor> ReduceScatter(const GroupOfMode& groups, ParallelMode mode,
                                     const Tensor& input, const ReduceScatterOptions& options) {
  COHORT_ASSIGN_OR_RETURN(client::Group* const group, groups(mode));
  return ReduceScatter(*group, input, options);
}

absl::StatusOr<Tensor> AllReduce(const GroupOfMode& groups, ParallelMode mode, const Tensor& input,
                                 const AllReduceOptions& options) {
  COHORT_ASSIGN_OR_RETURN(client::Group* const group, groups(mode));
  return AllReduce(*group, input, options);
}

absl::StatusOr<Tensor> Broadcast(const GroupOfMode& groups, ParallelMode mode, const Tensor& tensor,
                                 const BroadcastOptions& options) {
  COHORT_ASSIGN_OR_RETURN(client::Group* const group, groups(mode));
  return Broadcast(*group, tensor, options);
}

absl::StatusOr<std::optional<Tensor>> Reduce(const GroupOfMode& groups, ParallelMode mode,
                                             const Tensor& input, const ReduceOptions& options) {
  COHORT_ASSIGN_OR_RETURN(client::Group* const group, groups(mode));
  return Reduce(*group, input, options);
}

}  // namespace cohort::parallel
