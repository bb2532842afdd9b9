// Views of the same elements in other shapes, whatever their strides.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_VIEWS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_VIEWS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "base/tensor/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// The tensor with one more dimension in front, of extent 1.
Tensor Unsqueezed(const Tensor& tensor);

// Splits dimension `dim`, in 0..dims()-1, into two of extents `outer` and `inner`; its extent is
// their product.
Tensor WithDimSplit(const Tensor& tensor, int dim, int64_t outer, int64_t inner);

// Merges all dimensions before the last; nullopt if their strides do not allow it.
std::optional<Tensor> WithRowsMerged(const Tensor& tensor);

// The copies that bring the elements begin..end-1 of `from`, counted in order, to `to`. `to` has
// one dimension of as many elements and is contiguous. They are few copies, of boxes.
std::vector<client::TensorCopy> CopiesOfRange(const Tensor& from, int64_t begin, int64_t end,
                                              const Tensor& to);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_VIEWS_H_
