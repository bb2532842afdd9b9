// The errors of a group that has been aborted, and of one that a rank has left.
#ifndef COHORT_BASE_ABORT_ERROR_H_
#define COHORT_BASE_ABORT_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort {

// ABORTED with `cause`, which begins with a rank, such as "rank 3 is gone: its process ended". That
// rank is the error's culprit (base/error_ranks.h), unless it only reports an error, such as "rank 0
// gave up barrier: rank 3 did not come".
absl::Status AbortError(absl::string_view cause);

// The same for a rank that left in order: only calls that need that rank fail.
absl::Status LeftError(absl::string_view cause);
bool IsLeftError(const absl::Status& error);

}  // namespace cohort

#endif  // COHORT_BASE_ABORT_ERROR_H_
