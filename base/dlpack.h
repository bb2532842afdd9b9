// Tensors to and from other libraries of the same process, by DLPack: nothing is copied.
#ifndef COHORT_BASE_DLPACK_H_
#define COHORT_BASE_DLPACK_H_

#include "absl/status/statusor.h"
#include "base/tensor.h"

// Of <dlpack/dlpack.h>.
struct DLManagedTensor;

namespace cohort {

// Takes `managed` whatever comes of it: its deleter is called once, when the tensor and all its
// copies are gone, or before an error returns. Of the host, pinned or not, or of a GPU of CUDA's:
// what was enqueued to write it is up to who gives it.
//
// Errors: INVALID_ARGUMENT (what no tensor can be: negative extents, more bytes than addresses, no
// memory for elements); UNIMPLEMENTED (another device, or another type of elements; names it).
absl::StatusOr<Tensor> FromDLPack(DLManagedTensor* managed);

// Shares the elements with `tensor`, and keeps them until its deleter is called, which is up to who
// takes it. With strides, even if contiguous: not all readers take null for them.
DLManagedTensor* ToDLPack(const Tensor& tensor);

}  // namespace cohort

#endif  // COHORT_BASE_DLPACK_H_
