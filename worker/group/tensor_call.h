// Helpers for the arguments of a collective on tensors.
#ifndef COHORT_WORKER_GROUP_TENSOR_CALL_H_
#define COHORT_WORKER_GROUP_TENSOR_CALL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/collective_call.h"

namespace cohort::worker {

// The call without its root, dimension and sizes, which are set once they are checked. An error
// describes the call as far as it is checked.
CollectiveCall Unchecked(const CollectiveCall& asked);
// Sets the dimension of the call. `dim` is -n..n-1. Errors: INVALID_ARGUMENT.
absl::Status SetDim(CollectiveCall& call, int dim);

// An error of this rank's own arguments, which names the call: see worker/communicator/refusal.h.
absl::Status Refuse(const CollectiveCall& call, absl::string_view why);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TENSOR_CALL_H_
