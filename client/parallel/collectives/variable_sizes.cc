// Ragged collectives: ranks exchange the sizes of their parts if the caller does not give them.
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/collectives.h"
#include "client/parallel/collectives/results/allocate_result.h"
#include "client/parallel/collectives/shared_timeout.h"

namespace cohort::parallel {
namespace {

absl::StatusOr<int64_t> ExtentOf(Collective collective, const Tensor& input, int dim) {
  const absl::StatusOr<int> along = ResolveDim(input.shape(), dim);
  if (along.ok()) return input.shape()[static_cast<size_t>(*along)];
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(collective), " of ", input.ToString(), ": ", along.status().message()));
}

// The given sizes, or those that the ranks exchange.
absl::StatusOr<Sizes> SizesOf(client::Group& group, Collective collective, const Tensor& input,
                              int dim, const std::optional<Sizes>& given,
                              const SharedTimeout& shared_timeout) {
  if (given.has_value()) return *given;
  const absl::StatusOr<int64_t> own = ExtentOf(collective, input, dim);
  if (!own.ok()) return group.FailCollectiveAs(own.status(), shared_timeout.LeftOnHost());
  return group.ExchangeSizes(*own, shared_timeout.LeftOnHost());
}

// Ranks exchange a list's number of tensors and their common extent as one number.
constexpr int64_t kMostRows = int64_t{1} << 40;

absl::StatusOr<int64_t> DescribeList(absl::Span<const Tensor> inputs, int dim) {
  int64_t rows = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    COHORT_ASSIGN_OR_RETURN(const int64_t extent,
                            ExtentOf(Collective::kAllGatherV, inputs[i], dim));
    if (i == 0) rows = extent;
    if (extent == rows && rows < kMostRows) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("all_gather_v of a list along dimension ", dim, ": the extent of tensor 0 is ",
                     rows, ", that of tensor ", i, ", ", inputs[i].ToString(), ", is ", extent));
  }
  return static_cast<int64_t>(inputs.size()) * kMostRows + rows;
}

}  // namespace

absl::StatusOr<Tensor> AllGatherV(client::Group& group, const Tensor& input,
                                  const AllGatherVOptions& options) {
  const SharedTimeout shared_timeout(options.call);
  COHORT_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(group, Collective::kAllGatherV, input,
                                                     options.dim, options.sizes, shared_timeout));
  COHORT_ASSIGN_OR_RETURN(
      const Tensor result,
      AllocateResult(group,
                     AllGatherVResult(SpecOf(input), RankAndSizeOf(group), options.dim, sizes),
                     options.buffers, shared_timeout.Left()));
  COHORT_RETURN_IF_ERROR(
      group.AllGatherV(input, result, options.dim, sizes, shared_timeout.Left()));
  return result;
}

absl::StatusOr<std::vector<Tensor>> AllGatherV(client::Group& group,
                                               absl::Span<const Tensor> inputs,
                                               const AllGatherVOptions& options) {
  const SharedTimeout shared_timeout(options.call);
  const absl::StatusOr<int64_t> own = DescribeList(inputs, options.dim);
  if (!own.ok()) return group.FailCollectiveAs(own.status(), shared_timeout.LeftOnHost());
  // Also with given sizes: with lists of different lengths, some ranks would wait in vain.
  COHORT_ASSIGN_OR_RETURN(Sizes sizes, group.ExchangeSizes(*own, shared_timeout.LeftOnHost()));
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    if (sizes[rank] / kMostRows != sizes[0] / kMostRows) {
      return absl::InvalidArgumentError(absl::StrCat("all_gather_v of lists: rank 0 gives ",
                                                     sizes[0] / kMostRows, " tensors, rank ", rank,
                                                     " gives ", sizes[rank] / kMostRows));
    }
  }
  for (int64_t& size : sizes) size %= kMostRows;
  if (options.sizes.has_value()) sizes = *options.sizes;

  std::vector<Tensor> results;
  for (const Tensor& input : inputs) {
    COHORT_ASSIGN_OR_RETURN(
        Tensor result,
        AllocateResult(group,
                       AllGatherVResult(SpecOf(input), RankAndSizeOf(group), options.dim, sizes),
                       options.buffers, shared_timeout.Left()));
    results.push_back(std::move(result));
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    COHORT_RETURN_IF_ERROR(
        group.AllGatherV(inputs[i], results[i], options.dim, sizes, shared_timeout.Left()));
  }
  return results;
}

absl::StatusOr<Tensor> ReduceScatterV(client::Group& group, const Tensor& input,
                                      const ReduceScatterVOptions& options) {
  if (!options.sizes.has_value()) {
    return ReduceScatter(group, input,
                         {.dim = options.dim,
                          .reduction = options.reduction,
                          .call = options.call,
                          .buffers = options.buffers});
  }
  COHORT_ASSIGN_OR_RETURN(
      const Tensor result,
      AllocateResult(group,
                     ReduceScatterVResult(SpecOf(input), RankAndSizeOf(group), options.dim,
                                          *options.sizes, options.reduction),
                     options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(group.ReduceScatterV(input, result, options.dim, *options.sizes,
                                              options.reduction, options.call));
  return result;
}

absl::StatusOr<std::optional<Tensor>> GatherV(client::Group& group, const Tensor& input,
                                              const GatherVOptions& options) {
  const SharedTimeout shared_timeout(options.call);
  COHORT_ASSIGN_OR_RETURN(const Sizes sizes, SizesOf(group, Collective::kGatherV, input,
                                                     options.dim, options.sizes, shared_timeout));
  std::optional<Tensor> result;
  if (group.rank() == options.root) {
    COHORT_ASSIGN_OR_RETURN(
        result, AllocateResult(group,
                               GatherVResult(SpecOf(input), RankAndSizeOf(group), options.dim,
                                             sizes, options.root),
                               options.buffers, shared_timeout.Left()));
  }
  COHORT_RETURN_IF_ERROR(group.GatherV(input, result.value_or(Tensor()), options.dim, sizes,
                                       options.root, shared_timeout.Left()));
  return result;
}

absl::StatusOr<Tensor> AllToAllV(client::Group& group, const Tensor& input,
                                 const AllToAllVOptions& options) {
  Sizes even;
  if (!options.input_sizes.has_value() || !options.output_sizes.has_value()) {
    // A wrong shape or a remainder gets the error text of AllToAll.
    const absl::StatusOr<TensorSpec> same = AllToAllResult(SpecOf(input), RankAndSizeOf(group));
    if (!same.ok()) return group.FailCollectiveAs(same.status(), options.call);
    even.assign(static_cast<size_t>(group.size()), input.shape()[0] / group.size());
  }
  const Sizes& input_sizes = options.input_sizes.has_value() ? *options.input_sizes : even;
  const Sizes& output_sizes = options.output_sizes.has_value() ? *options.output_sizes : even;
  COHORT_ASSIGN_OR_RETURN(
      const Tensor result,
      AllocateResult(
          group, AllToAllVResult(SpecOf(input), RankAndSizeOf(group), input_sizes, output_sizes),
          options.buffers, options.call));
  COHORT_RETURN_IF_ERROR(group.AllToAllV(input, input_sizes, result, output_sizes, options.call));
  return result;
}

}  // namespace cohort::parallel
