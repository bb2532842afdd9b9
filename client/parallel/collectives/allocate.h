// Memory for a tensor of a shape that somebody gave, or that was worked out from what somebody
// gave.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_ALLOCATE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_ALLOCATE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"

namespace cohort::parallel {

// OK, or INVALID_ARGUMENT: an extent is negative, or there are more bytes than can be counted. An
// extent of 0 does not make the others smaller: strides and rows are counted, too.
absl::Status CheckCountable(DataType type, const Shape& shape);

// As Group::Allocate. Errors: those of CheckCountable; RESOURCE_EXHAUSTED, whatever the memory is
// of.
absl::StatusOr<Tensor> Allocate(client::Group& group, DataType type, const Shape& shape,
                                Device device = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_ALLOCATE_H_
