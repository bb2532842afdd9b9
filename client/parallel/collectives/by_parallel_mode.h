// Collectives on the group of a parallel mode: ColossalAI's forms.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_BY_PARALLEL_MODE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_BY_PARALLEL_MODE_H_

#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/collectives.h"
#include "client/parallel/layout/role.h"

namespace cohort::parallel {

// Returns this rank's group of a mode, or an error if there is no such group.
using GroupOfMode = std::function<absl::StatusOr<client::Group*>(ParallelMode)>;

// Like the functions of the same names, on the group that `groups` has for the mode. Roots are
// ranks in that group. Errors besides: those of `groups`, which only this rank gets.
//
// Source: all_gather, reduce_scatter, all_reduce, broadcast, reduce. In place of async_op:
//
//   Pending<Tensor>::Start(calls, [=](client::Group& g) { return AllReduce(g, tensor); });

absl::StatusOr<Tensor> AllGather(const GroupOfMode& groups, ParallelMode mode, const Tensor& input,
                                 const AllGatherOptions& options = {});
absl::StatusOr<Tensor> ReduceScatter(const GroupOfMode& groups, ParallelMode mode,
                                     const Tensor& input, const ReduceScatterOptions& options = {});
absl::StatusOr<Tensor> AllReduce(const GroupOfMode& groups, ParallelMode mode, const Tensor& input,
                                 const AllReduceOptions& options = {});
absl::StatusOr<Tensor> Broadcast(const GroupOfMode& groups, ParallelMode mode, const Tensor& tensor,
                                 const BroadcastOptions& options = {});
absl::StatusOr<std::optional<Tensor>> Reduce(const GroupOfMode& groups, ParallelMode mode,
                                             const Tensor& input,
                                             const ReduceOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_BY_PARALLEL_MODE_H_
