// The error of ranks that called different things, told from a rank's own: all ranks have it, and
// have it after the same call, so that they can go on together from there.
#ifndef COHORT_WORKER_COMMUNICATOR_MISMATCH_H_
#define COHORT_WORKER_COMMUNICATOR_MISMATCH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker {

// INVALID_ARGUMENT, marked: what rank 0 and another called, which differ, if only in their tags.
absl::Status MismatchError(absl::string_view first, int other_rank, absl::string_view other);
bool IsMismatch(const absl::Status& status);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_MISMATCH_H_
