// Waits, until a deadline, for a condition that can only be polled.
#ifndef COHORT_WORKER_CUDA_STREAMS_POLL_UNTIL_H_
#define COHORT_WORKER_CUDA_STREAMS_POLL_UNTIL_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace cohort::worker::cuda {

// Polls `is_done` until it returns true or an error. For the first 50 microseconds it does not
// pause. Then each pause is at most an eighth of the time waited so far, and at most half a
// millisecond. Returns false at `deadline` (steady time), after at least one poll.
absl::StatusOr<bool> PollUntil(absl::FunctionRef<absl::StatusOr<bool>()> is_done, Instant deadline);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_STREAMS_POLL_UNTIL_H_
