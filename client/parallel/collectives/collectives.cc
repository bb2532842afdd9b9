#include "client/parallel/collectives/collectives.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/results/allocate_result.h"
#include "client/parallel/collectives/shared_timeout.h"

namespace cohort::parallel {

absl::StatusOr<Tensor> AllReduce(client::Group& group, const Tensor& input,
                                 const AllReduceOptions& options) {
  const absl::StatusOr<TensorSpec> spec = AllReduceResult(SpecOf(input), options.reduction);
  if (!spec.ok()) return group.FailCollectiveAs(spec.status(), options.call);
  Tensor result = input;
  if (!options.in_place) {
    COHORT_ASSIGN_OR_RETURN(result, AllocateResult(group, spec, options.buffers, options.call));
  }
  COHORT_RETURN_IF_ERROR(group.AllReduce(input, result, options.reduction, options.call));
  return result;
}

absl::StatusOr<std::optional<Tensor>> Reduce(client::Group& group, const Tensor& input,
                                             const ReduceOptions& options) {
  const absl::StatusOr<TensorSpec> spec =
      ReduceResult(SpecOf(input), RankAndSizeOf(group), options.root, options.reduction);
  if (!spec.ok()) return group.FailCollectiveAs(spec.status(), options.call);
  std::optional<Tensor> result;
  if (group.rank() == options.root) {
    result = input;
    if (!options.in_place) {
      COHORT_ASSIGN_OR_RETURN(result, AllocateResult(group, spec, options.buffers, options.call));
    }
  }
  COHORT_RETURN_IF_ERROR(group.Reduce(input, result.value_or(Tensor()), options.reduction,
                                      options.root, options.call));
  return result;
}

absl::StatusOr<Tensor> Broadcast(client::Group& group, const Tensor& tensor,
                                 const BroadcastOptions& options) {
  if (options.in_place) {
    COHORT_RETURN_IF_ERROR(group.Broadcast(tensor, options.root, options.call));
    return tensor;
  }
  const SharedTimeout shared_timeout(options.call);
  COHORT_ASSIGN_OR_RETURN(
      const Tensor result,
      AllocateResult(group, BroadcastResult(SpecOf(tensor), RankAndSizeOf(group), options.root),
                     options.buffers, options.call));
  const bool is_root = group.rank() == options.root;
  COHORT_RETURN_IF_ERROR(group.Broadcast(is_root ? tensor : result, options.root, options.call));
  // The root copies after the broadcast, so that the other ranks do not wait for the copy.
  if (is_root) COHORT_RETURN_IF_ERROR(group.Copy(tensor, result, shared_timeout.Left()));
  return result;
}

absl::StatusOr<Tensor> Broadcast(client::Group& group, const TensorSpec& spec,
                                 const BroadcastOptions& options) {
  if (group.rank() == options.root) {
    return group.FailCollectiveAs(absl::InvalidArgumentError(absl::StrCat(
                                      "broadcast of ", spec.ToString(), ": the root, rank ",
                                      options.root, ", gives no tensor")),
                                  options.call);
  }
  COHORT_ASSIGN_OR_RETURN(
      const Tensor result,
      AllocateResult(group, BroadcastResult(spec, RankAndSizeOf(group), options.root),
                     options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(group.Broadcast(result, options.root, options.call));
  return result;
}

absl::StatusOr<Tensor> AllGather(client::Group& group, const Tensor& input,
                                 const AllGatherOptions& options) {
  COHORT_ASSIGN_OR_RETURN(
      const Tensor result,
      AllocateResult(group, AllGatherResult(SpecOf(input), RankAndSizeOf(group), options.dim),
                     options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(group.AllGather(input, result, options.dim, options.call));
  return result;
}

absl::StatusOr<Tensor> ReduceScatter(client::Group& group, const Tensor& input,
                                     const ReduceScatterOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const Tensor result,
                          AllocateResult(group,
                                         ReduceScatterResult(SpecOf(input), RankAndSizeOf(group),
                                                             options.dim, options.reduction),
                                         options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(
      group.ReduceScatter(input, result, options.dim, options.reduction, options.call));
  return result;
}

absl::StatusOr<std::optional<Tensor>> Gather(client::Group& group, const Tensor& input,
                                             const GatherOptions& options) {
  std::optional<Tensor> result;
  if (group.rank() == options.root) {
    COHORT_ASSIGN_OR_RETURN(result, AllocateResult(group,
                                                   GatherResult(SpecOf(input), RankAndSizeOf(group),
                                                                options.dim, options.root),
                                                   options.buffers, options.call));
  }
  COHORT_RETURN_IF_ERROR(
      group.Gather(input, result.value_or(Tensor()), options.dim, options.root, options.call));
  return result;
}

absl::StatusOr<Tensor> AllToAll(client::Group& group, const Tensor& input,
                                const AllToAllOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const Tensor result,
                          AllocateResult(group, AllToAllResult(SpecOf(input), RankAndSizeOf(group)),
                                         options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(group.AllToAll(input, result, options.call));
  return result;
}

}  // namespace cohort::parallel
