// Memory for a tensor of a given or computed shape.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_ALLOCATE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_ALLOCATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// OK, or INVALID_ARGUMENT: an extent is negative, or there are more bytes than int64_t counts. An
// extent of 0 counts as 1, because strides and rows must be countable, too.
absl::Status CheckCountable(DataType type, const Shape& shape);

// Like Group::Allocate. Errors: those of CheckCountable; RESOURCE_EXHAUSTED for any kind of memory.
absl::StatusOr<Tensor> Allocate(client::Group& group, DataType type, const Shape& shape,
                                Device device = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_ALLOCATE_H_
