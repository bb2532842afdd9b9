// How a rank that cannot take part in a collective keeps the others from waiting for it.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_FAIL_COLLECTIVE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_FAIL_COLLECTIVE_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/result_buffers.h"
#include "client/parallel/collectives/result_shapes.h"

namespace cohort::parallel {

// Called instead of a collective that all ranks call. Returns the error that all ranks get. But if
// `why` is no wrong argument, such as a lack of memory, this rank gets `why` itself. On a stream
// the other ranks get no error, as with the group's own collectives.
absl::Status FailCollective(client::Group& group, const absl::Status& why,
                            const client::CallOptions& options);

// A tensor for the result of a collective, from `buffers` or, if null, from the group. If `spec` is
// an error or there is no memory, all ranks get an error.
absl::StatusOr<Tensor> AllocateResult(client::Group& group, const absl::StatusOr<TensorSpec>& spec,
                                      const Buffers* buffers, const client::CallOptions& options);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_FAIL_COLLECTIVE_H_
