// The error of a rank whose own arguments make no sense: it is found before the rank has met the
// others, who can still be told.
#ifndef COHORT_WORKER_COMMUNICATOR_REFUSAL_H_
#define COHORT_WORKER_COMMUNICATOR_REFUSAL_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker {

// INVALID_ARGUMENT, marked.
absl::Status RefusalError(absl::string_view why);
bool IsRefusal(const absl::Status& status);
// The same without the mark.
absl::Status Unmarked(absl::Status status);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_REFUSAL_H_
