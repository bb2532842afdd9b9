// Helpers for the arguments of a collective on tensors.
#ifndef COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_CALL_H_
#define COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_CALL_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/collective/collective_call.h"

namespace cohort::worker {

// Returns the call with its dimension, which is -n..n-1, as 0..n-1. Errors: INVALID_ARGUMENT.
absl::StatusOr<CollectiveCall> WithResolvedDim(const CollectiveCall& call);
// Checks that the call is along dimension 0. Errors: INVALID_ARGUMENT.
absl::Status CheckFirstDim(const CollectiveCall& call);

// Returns an error of this rank's own arguments, which names the call: see
// worker/communicator/argument_error.h.
absl::Status InvalidCall(const CollectiveCall& call, absl::string_view why);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_CALL_H_
