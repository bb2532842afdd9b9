// The type, shape and place of each collective's result, computed without a group. The collectives
// allocate with these functions, so both accept the same arguments.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_RESULT_SHAPES_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_RESULT_SHAPES_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "base/tensor/device.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

using client::Sizes;

// A tensor's type, shape and place, without elements.
struct TensorSpec {
  DataType type = DataType::kF32;
  Shape shape;
  Device device = Device::Host();

  // In the form of Tensor's: f32 [3, 4], or, on a GPU: f32 [3, 4] on cuda:1
  std::string ToString() const;
};

TensorSpec SpecOf(const Tensor& tensor);

// One of the ranks of a group.
struct RankAndSize {
  int rank = 0;
  int ranks = 1;
};

inline RankAndSize RankAndSizeOf(const client::Group& group) {
  return {group.rank(), group.size()};
}

// `dim` is -n..n-1; roots are 0..ranks-1. Errors of all: INVALID_ARGUMENT, with the collective, its
// input and the wrong number. Causes:
//   - The tensor has no such dimension, or there is no such root.
//   - An extent is not a multiple of the ranks.
//   - The sizes are not one for each rank, are negative, or do not fit the input.
//   - The type does not have the reduction.
//   - The result has more elements than can be counted.
//
// These functions do not know whether a GPU's NCCL has a reduction for a type; the call returns
// UNIMPLEMENTED if it does not.

absl::StatusOr<TensorSpec> AllReduceResult(const TensorSpec& input, const Reduction& reduction);
// The root's result; other ranks have no result.
absl::StatusOr<TensorSpec> ReduceResult(const TensorSpec& input, RankAndSize self, int root,
                                        const Reduction& reduction);
absl::StatusOr<TensorSpec> BroadcastResult(const TensorSpec& tensor, RankAndSize self, int root);
// The extent along `dim` is the input's times the ranks.
absl::StatusOr<TensorSpec> AllGatherResult(const TensorSpec& input, RankAndSize self, int dim);
// The extent along `dim` becomes the sum of sizes. The input's is sizes[rank].
absl::StatusOr<TensorSpec> AllGatherVResult(const TensorSpec& input, RankAndSize self, int dim,
                                            const Sizes& sizes);
// The extent along `dim` is the input's divided by the ranks.
absl::StatusOr<TensorSpec> ReduceScatterResult(const TensorSpec& input, RankAndSize self, int dim,
                                               const Reduction& reduction);
// The extent along `dim` becomes sizes[rank]. The input's is the sum.
absl::StatusOr<TensorSpec> ReduceScatterVResult(const TensorSpec& input, RankAndSize self, int dim,
                                                const Sizes& sizes, const Reduction& reduction);
// The root's result, like AllGather's; other ranks have no result.
absl::StatusOr<TensorSpec> GatherResult(const TensorSpec& input, RankAndSize self, int dim,
                                        int root);
absl::StatusOr<TensorSpec> GatherVResult(const TensorSpec& input, RankAndSize self, int dim,
                                         const Sizes& sizes, int root);
// Every rank's result; `whole` is the root's tensor.
absl::StatusOr<TensorSpec> ScatterResult(const TensorSpec& whole, RankAndSize self, int dim,
                                         int root);
// The input's shape, of which the first extent is a multiple of the ranks.
absl::StatusOr<TensorSpec> AllToAllResult(const TensorSpec& input, RankAndSize self);
// The first extent becomes the sum of output_sizes. The input's is the sum of input_sizes.
absl::StatusOr<TensorSpec> AllToAllVResult(const TensorSpec& input, RankAndSize self,
                                           const Sizes& input_sizes, const Sizes& output_sizes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_RESULT_SHAPES_H_
