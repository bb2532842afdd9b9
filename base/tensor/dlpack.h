// Exchanges tensors with other libraries of the process through DLPack, without a copy.
#ifndef COHORT_BASE_TENSOR_DLPACK_H_
#define COHORT_BASE_TENSOR_DLPACK_H_

#include <dlpack/dlpack.h>

#include <memory>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"

namespace cohort {

// Takes ownership of `managed`, also if it fails: calls its deleter once, when the tensor and all
// its copies are gone, or before it returns an error. The memory is the host's, pinned or not, or a
// CUDA GPU's. The caller orders work on a stream that still writes the memory.
//
// Errors: INVALID_ARGUMENT (negative extents, more bytes than addresses, or no memory for
// elements), UNIMPLEMENTED (another device or type of elements; names it).
absl::StatusOr<Tensor> FromDLPack(DLManagedTensor* managed);

// Returns a view of a DLTensor, whose memory lives as long as `owner`, or, if that is null, as the
// caller sees to. Errors: as FromDLPack.
absl::StatusOr<Tensor> ViewDLPack(const DLTensor& tensor, std::shared_ptr<const void> owner);

// Shares the elements with `tensor` and keeps them alive until the receiver calls the deleter. The
// result always has strides: not all readers accept null for a contiguous tensor.
DLManagedTensor* ToDLPack(const Tensor& tensor);

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_DLPACK_H_
