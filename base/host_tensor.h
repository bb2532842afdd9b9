// New memory of this process for a tensor whose size somebody else has said.
#ifndef COHORT_BASE_HOST_TENSOR_H_
#define COHORT_BASE_HOST_TENSOR_H_

#include "absl/status/statusor.h"
#include "base/data_type.h"
#include "base/tensor.h"

namespace cohort {

// As Tensor::Uninitialized. Errors: INVALID_ARGUMENT (a negative extent); RESOURCE_EXHAUSTED (more
// than this machine has, or than there is).
absl::StatusOr<Tensor> NewHostTensor(DataType type, const Shape& shape);

}  // namespace cohort

#endif  // COHORT_BASE_HOST_TENSOR_H_
