// Other shapes of the same elements, whatever their strides.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_VIEWS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_VIEWS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// With one more dimension in front, of an extent of 1.
Tensor Unsqueezed(const Tensor& tensor);

// Dimension `dim`, in 0..dims()-1, as two: of `outer` times `inner` elements, which it has.
Tensor WithDimSplit(const Tensor& tensor, int dim, int64_t outer, int64_t inner);

// All dimensions before the last as one; nullopt where their strides do not allow that.
std::optional<Tensor> WithRowsMerged(const Tensor& tensor);

// What brings the elements begin..end-1, counted in order, of `from` to `to`, which has one
// dimension, of as many, and is contiguous: few copies, of boxes.
std::vector<client::TensorCopy> CopiesOfRange(const Tensor& from, int64_t begin, int64_t end,
                                              const Tensor& to);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_VIEWS_H_
