// Lets streams of different processes wait for each other.
#ifndef COHORT_WORKER_CUDA_STREAMS_STREAM_FLAG_H_
#define COHORT_WORKER_CUDA_STREAMS_STREAM_FLAG_H_

#include <cstdint>

#include "absl/status/status.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// A flag is a growing number at a multiple of 8 bytes, in memory that the device reads and writes.
// Mostly that is a shared segment that each process has registered (RegisteredMemory::device_data).
// A stream can wait for a flag before the other process sets it; it cannot wait for another
// process's event before that is recorded. Every process that maps a flag can release its waiters:
// an atomic store of a larger number by the host does it. Errors: INVALID_ARGUMENT (no such
// memory).

// Sets the flag after the work enqueued so far. A reader that sees the value also sees that work's
// results.
absl::Status SetFlag(cudaStream_t stream, uint64_t* flag, uint64_t value);
// Work enqueued from now on waits until the flag is at least `value`. Freeing the device's memory
// waits for it too, as for all work. Numbers may wrap around: those up to 2^63 - 1 ahead count as
// larger.
absl::Status AwaitFlag(cudaStream_t stream, uint64_t* flag, uint64_t value);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_STREAMS_STREAM_FLAG_H_
