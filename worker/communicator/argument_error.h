// The error of a rank whose own arguments are wrong. The rank finds it before it waits for the
// other ranks, so it can still fail the collective for them.
#ifndef COHORT_WORKER_COMMUNICATOR_ARGUMENT_ERROR_H_
#define COHORT_WORKER_COMMUNICATOR_ARGUMENT_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker {

// INVALID_ARGUMENT with the mark.
absl::Status ArgumentError(absl::string_view why);
bool IsArgumentError(const absl::Status& status);
// The same without the mark.
absl::Status Unmarked(absl::Status status);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_ARGUMENT_ERROR_H_
