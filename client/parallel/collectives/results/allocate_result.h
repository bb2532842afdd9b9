// Memory for the result of a collective.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_ALLOCATE_RESULT_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_ALLOCATE_RESULT_H_

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/results/result_buffers.h"
#include "client/parallel/collectives/results/result_shapes.h"

namespace cohort::parallel {

// A tensor for the result of a collective, from `buffers` or, if null, from the group. If `spec` is
// an error or there is no memory, all ranks get an error: see Group::FailCollectiveAs.
absl::StatusOr<Tensor> AllocateResult(client::Group& group, const absl::StatusOr<TensorSpec>& spec,
                                      const Buffers* buffers, const client::CallOptions& options);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_ALLOCATE_RESULT_H_
