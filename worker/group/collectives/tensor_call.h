// Helpers for the arguments of a collective on tensors.
#ifndef COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_CALL_H_
#define COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_CALL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/collective/collective_call.h"

namespace cohort::worker {

// Returns the call without its root, dimension and sizes; the checks set them. An error thus
// describes only the checked part of the call.
CollectiveCall Unchecked(const CollectiveCall& asked);
// Sets the dimension of the call. `dim` is -n..n-1. Errors: INVALID_ARGUMENT.
absl::Status SetDim(CollectiveCall& call, int dim);

// Returns an error of this rank's own arguments, which names the call: see
// worker/communicator/argument_error.h.
absl::Status InvalidCall(const CollectiveCall& call, absl::string_view why);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_CALL_H_
