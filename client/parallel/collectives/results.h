// What each verb returns, worked out without a group: its own type, shape and place. The verbs
// allocate by these, so that what they accept and what a call accepts cannot differ.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "base/device.h"
#include "base/reduction.h"
#include "base/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

using client::Sizes;

// A tensor but for its elements.
struct TensorSpec {
  DataType type = DataType::kF32;
  Shape shape;
  Device device = Device::Host();

  // As Tensor's: f32 [3, 4], or, on a GPU: f32 [3, 4] on cuda:1
  std::string ToString() const;
};

TensorSpec SpecOf(const Tensor& tensor);

// One of the ranks of a group.
struct Seat {
  int rank = 0;
  int ranks = 1;
};

inline Seat SeatOf(const client::Group& group) { return {group.rank(), group.size()}; }

// `dim` is -n..n-1; roots are 0..ranks-1. Errors of all: INVALID_ARGUMENT, with the verb, its input
// and the number that is wrong: no such dimension (of a tensor of no dimensions: none at all), no
// such root, an extent that is not a multiple of the ranks, sizes that are not one for each rank,
// negative, or not what the input has, a reduction of what cannot be reduced, or more elements than
// can be counted.
//
// What these cannot know: that a GPU's NCCL lacks a reduction of a type, which the call says, with
// UNIMPLEMENTED.

absl::StatusOr<TensorSpec> AllReduceResult(const TensorSpec& input, const Reduction& reduction);
// Of the root. Others have none.
absl::StatusOr<TensorSpec> ReduceResult(const TensorSpec& input, Seat seat, int root,
                                        const Reduction& reduction);
absl::StatusOr<TensorSpec> BroadcastResult(const TensorSpec& tensor, Seat seat, int root);
// The extent of `dim` times the ranks.
absl::StatusOr<TensorSpec> AllGatherResult(const TensorSpec& input, Seat seat, int dim);
// The extent of `dim` becomes the sum of sizes. The input's is sizes[rank].
absl::StatusOr<TensorSpec> AllGatherVResult(const TensorSpec& input, Seat seat, int dim,
                                            const Sizes& sizes);
// The extent of `dim` divided by the ranks.
absl::StatusOr<TensorSpec> ReduceScatterResult(const TensorSpec& input, Seat seat, int dim,
                                               const Reduction& reduction);
// The extent of `dim` becomes sizes[rank]. The input's is the sum.
absl::StatusOr<TensorSpec> ReduceScatterVResult(const TensorSpec& input, Seat seat, int dim,
                                                const Sizes& sizes, const Reduction& reduction);
// Of the root, as AllGather's. Others have none.
absl::StatusOr<TensorSpec> GatherResult(const TensorSpec& input, Seat seat, int dim, int root);
absl::StatusOr<TensorSpec> GatherVResult(const TensorSpec& input, Seat seat, int dim,
                                         const Sizes& sizes, int root);
// Of every rank; `whole` is the root's.
absl::StatusOr<TensorSpec> ScatterResult(const TensorSpec& whole, Seat seat, int dim, int root);
// The input's shape, of which the first extent is a multiple of the ranks.
absl::StatusOr<TensorSpec> AllToAllResult(const TensorSpec& input, Seat seat);
// The first extent becomes the sum of output_sizes. The input's is the sum of input_sizes.
absl::StatusOr<TensorSpec> AllToAllVResult(const TensorSpec& input, Seat seat,
                                           const Sizes& input_sizes, const Sizes& output_sizes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_H_
