// A queue of work on a device.
#ifndef COHORT_WORKER_CUDA_STREAMS_STREAM_H_
#define COHORT_WORKER_CUDA_STREAMS_STREAM_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// A stream of this process's own; it and the default stream do not wait for each other. Movable;
// the destructor does not wait, and enqueued work still completes. A moved-from stream can be
// destroyed or assigned to. Thread-safe, as CUDA's streams are.
class Stream {
 public:
  // Errors: those of DescribeDevice, RESOURCE_EXHAUSTED.
  static absl::StatusOr<Stream> Create(int device);

  Stream(Stream&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)), device_(other.device_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~Stream();

  cudaStream_t get() const { return stream_; }
  int device() const { return device_; }

 private:
  Stream(cudaStream_t stream, int device) : stream_(stream), device_(device) {}

  cudaStream_t stream_;
  int device_;
};

// The following functions take any stream: a caller's or a Stream.

// Whether all enqueued work is done. Errors: INTERNAL (the device failed), FAILED_PRECONDITION (the
// stream is being captured; the capture is lost).
absl::StatusOr<bool> IsIdle(cudaStream_t stream);

// Waits for the work that has been enqueued so far, until `deadline` (steady time) at most; work
// enqueued meanwhile does not matter. Errors: DEADLINE_EXCEEDED, and those of IsIdle.
absl::Status Synchronize(cudaStream_t stream, Instant deadline);

// Whether a capture records the stream's work. Errors: FAILED_PRECONDITION (another stream's
// capture is in the way).
absl::StatusOr<bool> IsCaptured(cudaStream_t stream);

// The device of a stream.
absl::StatusOr<int> DeviceOf(cudaStream_t stream);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_STREAMS_STREAM_H_
