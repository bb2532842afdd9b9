// The error of a rank whose own arguments are wrong. The rank finds it before it has met the other
// ranks, so they can still be told.
#ifndef COHORT_WORKER_COMMUNICATOR_REFUSAL_H_
#define COHORT_WORKER_COMMUNICATOR_REFUSAL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker {

// INVALID_ARGUMENT with the mark.
absl::Status RefusalError(absl::string_view why);
bool IsRefusal(const absl::Status& status);
// The same without the mark.
absl::Status Unmarked(absl::Status status);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_REFUSAL_H_
