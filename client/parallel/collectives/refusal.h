// How a rank that cannot take part in a verb keeps the others from waiting for it.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_REFUSAL_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_REFUSAL_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/buffers.h"
#include "client/parallel/collectives/results.h"

namespace cohort::parallel {

// In place of a verb that all ranks call. What all then get; but when `why` is no mistake in an
// argument, such as a lack of memory, this rank gets `why` itself. On a stream nobody is told, as
// by the group's own verbs.
absl::Status Refuse(client::Group& group, const absl::Status& why,
                    const client::CallOptions& options);

// A tensor for a verb's result, of `buffers` or, if null, of the group. Where there can be none,
// because `spec` is an error or there is no memory, all ranks hear of it.
absl::StatusOr<Tensor> AllocateResult(client::Group& group, const absl::StatusOr<TensorSpec>& spec,
                                      const Buffers* buffers, const client::CallOptions& options);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_REFUSAL_H_
