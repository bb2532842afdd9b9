// Parts of a tensor, and how to join them. A remainder is always an error, which names both
// numbers.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SPLITS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SPLITS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/results/result_buffers.h"

namespace cohort::parallel {

// --- Views: they copy nothing, and the parts share the tensor's elements.

// `parts` equal parts along `dim`, -n..n-1, in order. Errors: INVALID_ARGUMENT (no such dimension,
// a remainder, or no parts). Source: split_tensor_along_last_dim, with dim -1.
absl::StatusOr<std::vector<Tensor>> SplitEvenly(const Tensor& tensor, int dim, int parts);
// One of these parts.
absl::StatusOr<Tensor> PartOf(const Tensor& tensor, int dim, int parts, int index);

struct VocabularyRange {
  int64_t begin = 0;
  int64_t end = 0;  // after the last
};

// The entries of a vocabulary that a rank holds: equal ranges, in the order of ranks. Errors:
// INVALID_ARGUMENT (a remainder, a negative size, or no such rank). Source: VocabUtility.
absl::StatusOr<VocabularyRange> VocabularyRangeOf(int64_t vocabulary_size, int rank, int ranks);

// --- Copies: contiguous tensors of the group's memory, on the input's device.

// `call`: timeout and stream. `buffers`: the memory for results; null: the group's memory.
struct SplitOptions {
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// This rank's part, of size() equal ones, of a tensor that all ranks have. It takes no other rank,
// so only this rank gets its errors. Errors: INVALID_ARGUMENT; those of Group::Copy. Source:
// _split_along_last_dim, _split_along_first_dim.
absl::StatusOr<Tensor> SplitDim(client::Group& group, const Tensor& tensor, int dim,
                                const SplitOptions& options = {});
absl::StatusOr<Tensor> SplitLastDim(client::Group& group, const Tensor& tensor,
                                    const SplitOptions& options = {});
absl::StatusOr<Tensor> SplitFirstDim(client::Group& group, const Tensor& tensor,
                                     const SplitOptions& options = {});
// The same for all elements in a row, whatever the shape; the result has one dimension. Source:
// split_tensor_into_1d_equal_chunks.
absl::StatusOr<Tensor> Split1D(client::Group& group, const Tensor& tensor,
                               const SplitOptions& options = {});

// Joins the parts of Split1D. All ranks call it with their part, in any shape that is the same on
// all, and with the shape of the whole. All of them get the whole. Errors: INVALID_ARGUMENT, on all
// ranks alike (the number of elements differs); those of Group::AllGather. Source:
// gather_split_1d_tensor.
absl::StatusOr<Tensor> Gather1D(client::Group& group, const Tensor& part, const Shape& shape,
                                const SplitOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SPLITS_H_
