// Waiting, with a deadline, for what can only be asked about.
#ifndef COHORT_WORKER_CUDA_WAIT_H_
#define COHORT_WORKER_CUDA_WAIT_H_

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "base/clock.h"

namespace cohort::worker::cuda {

// Asks `is_done` again and again until it says so or fails: at first without a pause, then with
// longer and longer ones, of which none is more than an eighth of the time waited so far or half a
// millisecond. False: not by `deadline` (steady time); it was asked at least once.
absl::StatusOr<bool> PollUntil(absl::FunctionRef<absl::StatusOr<bool>()> is_done, Instant deadline);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_WAIT_H_
