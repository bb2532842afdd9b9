// Where tensors of a layer come to be split over the ranks of a group, and joined again: ten pairs
// of a forward verb and a backward one, its adjoint. Forward is called with activations, Backward
// with the gradient of what Forward gave; both return a tensor.
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
// First and last are the dimensions that are cut and joined. A slice is this rank's equal part.
//
// - What moves elements is as in collectives.h: all ranks of the group call it, it blocks, results
//   are new and contiguous, inputs of any strides are not written, and what is wrong with one
//   rank's arguments is INVALID_ARGUMENT on all ranks. All sums are over ranks.
// - An identity gives the very tensor: nothing is copied. A slice is a copy and asks no other rank:
//   what is wrong with it, such as a remainder, is said to the rank that calls it.
// - A group of one rank is fine everywhere.
//
// Adjoint: with x and y each rank's own, the <Forward(x), y> of all ranks add up to the same as the
// <x, Backward(y)> of all. Where all ranks have one input, x is the same on all of them, and a
// gradient of it is one tensor as well: its side is then that of a single rank. Where they have one
// output, the same holds of y. So no sum appears twice.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_REGIONS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_REGIONS_H_

#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/buffers.h"
#include "client/parallel/collectives/results.h"

namespace cohort::parallel {

// `call`: timeout and stream of each call. `buffers`, which outlive the region: where results come
// from; null: from the group.
struct RegionOptions {
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// What the regions have in common. The group outlives them. Cheap to copy.
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

 private:
  client::Group* group_;
  RegionOptions options_;
};

// In front of a layer whose weights are cut by columns. Seed: copy_to_tensor_model_parallel_region,
// _CopyToModelParallelRegion.
class CopyRegion : private Region {
 public:
  explicit CopyRegion(client::Group& group, RegionOptions options = {}) : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return input; }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Sum(gradient); }
};

// Behind a layer whose weights are cut by rows. Seed: reduce_from_tensor_model_parallel_region.
class ReduceRegion : private Region {
 public:
  explicit ReduceRegion(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Sum(input); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return gradient; }
};

// Of what all ranks have, each takes its part of the last dimension: no reduction. Seed:
// scatter_to_tensor_model_parallel_region.
class ScatterRegion : private Region {
 public:
  explicit ScatterRegion(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Slice(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Join(gradient, -1); }
};

// Seed: gather_from_tensor_model_parallel_region.
class GatherRegion : private Region {
 public:
  explicit GatherRegion(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Join(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Slice(gradient, -1); }
};

// As ScatterRegion, of the first dimension, the sequence's. Seed:
// scatter_to_sequence_parallel_region.
class SequenceScatter : private Region {
 public:
  explicit SequenceScatter(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Slice(input, 0); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Join(gradient, 0); }
};

struct SequenceGatherOptions {
  // Whether each rank has a gradient of its own of the whole, which are added up; else all have the
  // same, of which each takes its slice.
  bool tensor_parallel_output_grad = true;
  // By rank, rows; the same on all ranks. Absent: all have as many.
  std::optional<Sizes> sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// Seed: gather_from_sequence_parallel_region.
class SequenceGather : private Region {
 public:
  explicit SequenceGather(client::Group& group, SequenceGatherOptions options = {})
      : Region(group, {options.call, options.buffers}),
        sums_(options.tensor_parallel_output_grad),
        sizes_(std::move(options.sizes)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Join(input, 0, sizes_); }
  // Errors besides: INVALID_ARGUMENT (sizes, and a gradient that all have).
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const;

 private:
  bool sums_;
  std::optional<Sizes> sizes_;
};

struct SequenceReduceScatterOptions {
  // By rank, the rows that it gets; the same on all ranks. Absent: all as many.
  std::optional<Sizes> sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// Seed: reduce_scatter_to_sequence_parallel_region.
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

// Unlike GatherRegion, for gradients that are each rank's own. Seed:
// all_gather_last_dim_from_tensor_parallel_region.
class AllGatherLastDim : private Region {
 public:
  explicit AllGatherLastDim(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return Join(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return SumSlice(gradient, -1); }
};

// Seed: reduce_scatter_last_dim_to_tensor_parallel_region.
class ReduceScatterLastDim : private Region {
 public:
  explicit ReduceScatterLastDim(client::Group& group, RegionOptions options = {})
      : Region(group, options) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const { return SumSlice(input, -1); }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const { return Join(gradient, -1); }
};

struct AllToAllRegionOptions {
  // By rank, the rows that go to it and those that come from it: each rank's own numbers. One of
  // them absent: as many for each, of the input's rows. All ranks give sizes, or none gives any.
  std::optional<Sizes> input_sizes;
  std::optional<Sizes> output_sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// Seed: all_to_all.
class AllToAllRegion : private Region {
 public:
  explicit AllToAllRegion(client::Group& group, AllToAllRegionOptions options = {})
      : Region(group, {options.call, options.buffers}),
        input_sizes_(std::move(options.input_sizes)),
        output_sizes_(std::move(options.output_sizes)) {}

  absl::StatusOr<Tensor> Forward(const Tensor& input) const {
    return Exchange(input, input_sizes_, output_sizes_);
  }
  absl::StatusOr<Tensor> Backward(const Tensor& gradient) const {
    return Exchange(gradient, output_sizes_, input_sizes_);
  }

 private:
  std::optional<Sizes> input_sizes_;
  std::optional<Sizes> output_sizes_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_REGIONS_H_
