#include "client/parallel/tensor_parallel/regions.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/parallel/collectives/collectives.h"
#include "client/parallel/tensor_parallel/splits.h"

namespace cohort::parallel {

absl::StatusOr<Tensor> Region::Sum(const Tensor& tensor) const {
  return AllReduce(*group_, tensor, {.call = options_.call, .buffers = options_.buffers});
}

absl::StatusOr<Tensor> Region::Slice(const Tensor& tensor, int dim) const {
  return SplitDim(*group_, tensor, dim, {.call = options_.call, .buffers = options_.buffers});
}

absl::StatusOr<Tensor> Region::Join(const Tensor& tensor, int dim,
                                    const std::optional<Sizes>& sizes) const {
  if (sizes.has_value()) {
    return AllGatherV(
        *group_, tensor,
        {.dim = dim, .sizes = sizes, .call = options_.call, .buffers = options_.buffers});
  }
  return AllGather(*group_, tensor,
                   {.dim = dim, .call = options_.call, .buffers = options_.buffers});
}

absl::StatusOr<Tensor> Region::SumSlice(const Tensor& tensor, int dim,
                                        const std::optional<Sizes>& sizes) const {
  return ReduceScatterV(
      *group_, tensor,
      {.dim = dim, .sizes = sizes, .call = options_.call, .buffers = options_.buffers});
}

absl::StatusOr<Tensor> Region::Exchange(const Tensor& tensor,
                                        const std::optional<Sizes>& input_sizes,
                                        const std::optional<Sizes>& output_sizes) const {
  if (!input_sizes.has_value() && !output_sizes.has_value()) {
    return AllToAll(*group_, tensor, {.call = options_.call, .buffers = options_.buffers});
  }
  return AllToAllV(*group_, tensor,
                   {.input_sizes = input_sizes,
                    .output_sizes = output_sizes,
                    .call = options_.call,
                    .buffers = options_.buffers});
}

absl::StatusOr<Tensor> SequenceGather::Backward(const Tensor& gradient) const {
  if (sums_) return SumSlice(gradient, 0, sizes_);
  if (sizes_.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the gradient of a sequence_gather, ", gradient.ToString(),
                     ": where all ranks have the same one, sizes are not taken"));
  }
  return Slice(gradient, 0);
}

absl::StatusOr<Tensor> AllToAllRegion::Backward(const Tensor& gradient) const {
  const auto rank = static_cast<size_t>(group().rank());
  if (input_sizes_.has_value() || !output_sizes_.has_value() || rank >= output_sizes_->size()) {
    return Exchange(gradient, output_sizes_, input_sizes_);
  }
  // The gradient does not tell how many rows the input had. But the input was in equal parts, and
  // the output sizes include this rank's part for itself.
  return Exchange(gradient, output_sizes_,
                  Sizes(static_cast<size_t>(group().size()), (*output_sizes_)[rank]));
}

}  // namespace cohort::parallel
