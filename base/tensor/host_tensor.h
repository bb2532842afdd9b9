// Allocates host memory for a tensor whose size comes from another process or a caller.
#ifndef COHORT_BASE_TENSOR_HOST_TENSOR_H_
#define COHORT_BASE_TENSOR_HOST_TENSOR_H_

#include "absl/status/statusor.h"
#include "base/tensor/data_type.h"
#include "base/tensor/tensor.h"

namespace cohort {

// Like Tensor::Uninitialized. Errors: INVALID_ARGUMENT (a negative extent), RESOURCE_EXHAUSTED
// (more memory than this machine has, or than is free).
absl::StatusOr<Tensor> NewHostTensor(DataType type, const Shape& shape);

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_HOST_TENSOR_H_
