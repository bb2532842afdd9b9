// Parts of a tensor, and what joins them again. A remainder is an error everywhere, and names both
// numbers.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SPLITS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SPLITS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/buffers.h"

namespace cohort::parallel {

// --- Views: nothing is copied, and the parts are the tensor's own elements.

// `parts` equal ones along `dim`, -n..n-1, in order. Errors: INVALID_ARGUMENT (no such dimension, a
// remainder, or no parts). Seed: split_tensor_along_last_dim, with dim -1.
absl::StatusOr<std::vector<Tensor>> SplitEvenly(const Tensor& tensor, int dim, int parts);
// One of them.
absl::StatusOr<Tensor> PartOf(const Tensor& tensor, int dim, int parts, int index);

struct VocabularyRange {
  int64_t begin = 0;
  int64_t end = 0;  // behind the last
};

// Which entries of a vocabulary a rank holds: equal ranges, in the order of ranks. Errors:
// INVALID_ARGUMENT (a remainder, a negative size, or no such rank). Seed: VocabUtility.
absl::StatusOr<VocabularyRange> VocabularyRangeOf(int64_t vocabulary_size, int rank, int ranks);

// --- Copies: contiguous tensors of the group's memory, on the input's device.

// `call`: timeout and stream. `buffers`: where results come from; null: from the group.
struct SplitOptions {
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// This rank's part, of size() equal ones, of a tensor that all ranks have. No other rank is asked,
// so that what is wrong is said to this one alone. Errors: INVALID_ARGUMENT; those of Group::Copy.
// Seed: _split_along_last_dim, _split_along_first_dim.
absl::StatusOr<Tensor> SplitDim(client::Group& group, const Tensor& tensor, int dim,
                                const SplitOptions& options = {});
absl::StatusOr<Tensor> SplitLastDim(client::Group& group, const Tensor& tensor,
                                    const SplitOptions& options = {});
absl::StatusOr<Tensor> SplitFirstDim(client::Group& group, const Tensor& tensor,
                                     const SplitOptions& options = {});
// The same of all elements in a row, whatever the shape; the result has one dimension. Seed:
// split_tensor_into_1d_equal_chunks.
absl::StatusOr<Tensor> Split1D(client::Group& group, const Tensor& tensor,
                               const SplitOptions& options = {});

// All ranks call it with what Split1D gave them, in any shape that is the same on all, and with the
// shape that the whole had, which they have then. Errors: INVALID_ARGUMENT, on all ranks alike (it
// has not as many elements); those of Group::AllGather. Seed: gather_split_1d_tensor.
absl::StatusOr<Tensor> Gather1D(client::Group& group, const Tensor& part, const Shape& shape,
                                const SplitOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SPLITS_H_
