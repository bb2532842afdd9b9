// Streams of different processes that wait for each other.
#ifndef COHORT_WORKER_CUDA_STREAM_FLAG_H_
#define COHORT_WORKER_CUDA_STREAM_FLAG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// A flag is a number that grows, at a multiple of 8 bytes in memory that the device reads and
// writes: mostly in a segment that processes share and each has registered
// (RegisteredMemory::device_data). An event of another process cannot be waited for before it is
// recorded; a flag can. Whoever maps it lets all that wait go by writing a larger number than is
// waited for: an atomic store of the host will do. Errors: INVALID_ARGUMENT (no such memory).

// After what has been enqueued so far, and visibly to who sees the flag.
absl::Status SetFlag(cudaStream_t stream, uint64_t* flag, uint64_t value);
// What is enqueued from now on waits until the flag is at least `value`; so does freeing memory of
// the device, as of all work. Numbers may wrap around: those up to 2^63 - 1 ahead are larger.
absl::Status AwaitFlag(cudaStream_t stream, uint64_t* flag, uint64_t value);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_STREAM_FLAG_H_
