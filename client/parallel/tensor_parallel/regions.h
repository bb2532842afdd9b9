// The places in a layer at which tensors are split over the ranks of a group, or joined again: ten
// pairs of a forward call and its adjoint, the backward call. Forward takes activations; Backward
// takes the gradient of Forward's result. Both return a tensor.
//
//   region                 Forward                  Backward                        adjoint for
//
//   CopyRegion             identity                 all_reduce                      one input
//   ReduceRegion           all_reduce               identity                        one output
//   ScatterRegion          slice, last              all_gather, last                one input
//   GatherRegion           all_gather, last         slice, last                     one output
//   SequenceScatter        slice, first             all_gather, first               one input
//   SequenceGather         all_gather, first        reduce_scatter or slice, first  own; one output
//   SequenceReduceScatter  reduce_scatter, first    all_gather, first               own
//   AllGatherLastDim       all_gather, last         reduce_scatter, last            own
//   ReduceScatterLastDim   reduce_scatter, last     all_gather, last                own
//   AllToAllRegion         all_to_all, first        the same with sizes swapped     own
//
// First and last are the dimensions that are cut or joined. A slice is this rank's equal part.
//
// - Calls that move elements follow collectives.h: all ranks of the group call them, they block,
//   results are new and contiguous, and inputs have any strides and are not written. If the
//   arguments of one rank are wrong, all ranks get INVALID_ARGUMENT. All sums are over ranks.
// - An identity returns the given tensor; nothing is copied. A slice is a copy that takes no other
//   rank: only the calling rank gets its errors, such as a remainder.
// - A group of one rank is legal everywhere.
//
// Adjoint: x and y are each rank's own. The sum of <Forward(x), y> over all ranks is the sum of
// <x, Backward(y)> over all ranks. With "one input", x is the same tensor on all ranks, and so is
// its gradient: that side counts for a single rank. With "one output" the same holds for y. So no
// sum counts twice.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_REGIONS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_REGIONS_H_

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/results/result_buffers.h"
#include "client/parallel/collectives/results/result_shapes.h"

namespace cohort::parallel {

// `call`: timeout and stream of each call. `buffers`: the memory for results; it outlives the
// region. Null: the group's memory.
struct RegionOptions {
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// The common part of the regions. The group outlives them. Cheap to copy.
class Region {
 protected:
  explicit Region(client::Group& group, RegionOptions options)
      : group_(&group), options_(options) {}

  absl::StatusOr<Tensor> Sum(const Tensor& tensor) const;
  absl::StatusOr<Tensor> Slice(const Tensor& tensor, int dim) const;
  absl::StatusOr<Tensor> Join(const Tensor& tensor, int dim,
                              const std::optional<Sizes>& sizes = {}) const;
  absl::StatusOr<Tensor> SumSlice(const Tensor& tensor, int dim,
                                  const std::optional<Sizes>& sizes = {}) const;
  absl::StatusOr<Tensor> Exchange(const Tensor& tensor, const std::optional<Sizes>& input_sizes,
                                  const std::optional<Sizes>& output_sizes) const;
  const client::Group& group() const { return *group_; }

 private:
  client::Group* group_;
  RegionOptions options_;
};

// Before a layer whose weights are cut by columns. Source: copy_to_tensor_model_parallel_region,
// _CopyToModelParallelRegion.
class CopyRegion : private Region {
 public:
  explicit CopyRegion(client::Group& group, RegionOptions options = {}) : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return input; }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Sum(gradient); }
};

// After a layer whose weights are cut by rows. Source: reduce_from_tensor_model_parallel_region.
class ReduceRegion : private Region {
 public:
  explicit ReduceRegion(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Sum(input); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return gradient; }
};

// All ranks have the same input, and each takes its part of the last dimension, without a
// reduction. Source: scatter_to_tensor_model_parallel_region.
class ScatterRegion : private Region {
 public:
  explicit ScatterRegion(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Slice(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Join(gradient, -1); }
};

// Source: gather_from_tensor_model_parallel_region.
class GatherRegion : private Region {
 public:
  explicit GatherRegion(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Join(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Slice(gradient, -1); }
};

// Like ScatterRegion, along the first dimension, the sequence's. Source:
// scatter_to_sequence_parallel_region.
class SequenceScatter : private Region {
 public:
  explicit SequenceScatter(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Slice(input, 0); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Join(gradient, 0); }
};

struct SequenceGatherOptions {
  // If true, each rank has its own gradient of the whole, and the gradients are summed. If false,
  // all ranks have the same gradient, and each takes its slice.
  bool tensor_parallel_output_grad = true;
  // By rank, its rows; the same on all ranks. Absent: the same number on all ranks.
  std::optional<Sizes> sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// Source: gather_from_sequence_parallel_region.
class SequenceGather : private Region {
 public:
  explicit SequenceGather(client::Group& group, SequenceGatherOptions options = {})
      : Region(group, {options.call, options.buffers}),
        sums_(options.tensor_parallel_output_grad),
        sizes_(std::move(options.sizes)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Join(input, 0, sizes_); }
  // Errors besides: INVALID_ARGUMENT (`sizes` with a gradient that is the same on all ranks).
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const;

 private:
  bool sums_;
  std::optional<Sizes> sizes_;
};

struct SequenceReduceScatterOptions {
  // By rank, the rows that it gets; the same on all ranks. Absent: equal parts.
  std::optional<Sizes> sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// Source: reduce_scatter_to_sequence_parallel_region.
class SequenceReduceScatter : private Region {
 public:
  explicit SequenceReduceScatter(client::Group& group, SequenceReduceScatterOptions options = {})
      : Region(group, {options.call, options.buffers}), sizes_(std::move(options.sizes)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return SumSlice(input, 0, sizes_); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const {
    return Join(gradient, 0, sizes_);
  }

 private:
  std::optional<Sizes> sizes_;
};

// Unlike GatherRegion, each rank has its own gradient. Source:
// all_gather_last_dim_from_tensor_parallel_region.
class AllGatherLastDim : private Region {
 public:
  explicit AllGatherLastDim(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Join(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return SumSlice(gradient, -1); }
};

// Source: reduce_scatter_last_dim_to_tensor_parallel_region.
class ReduceScatterLastDim : private Region {
 public:
  explicit ReduceScatterLastDim(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return SumSlice(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Join(gradient, -1); }
};

struct AllToAllRegionOptions {
  // By rank, the rows that Forward sends to it, and the rows that Forward receives from it: each
  // rank's own numbers. An absent one stands for equal parts of the rows of Forward's input. Either
  // all ranks give sizes, or no rank does.
  std::optional<Sizes> input_sizes;
  std::optional<Sizes> output_sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// Source: all_to_all.
class AllToAllRegion : private Region {
 public:
  explicit AllToAllRegion(client::Group& group, AllToAllRegionOptions options = {})
      : Region(group, {options.call, options.buffers}),
        input_sizes_(std::move(options.input_sizes)),
        output_sizes_(std::move(options.output_sizes)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const {
    return Exchange(input, input_sizes_, output_sizes_);
  }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const;

 private:
  std::optional<Sizes> input_sizes_;
  std::optional<Sizes> output_sizes_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_REGIONS_H_
