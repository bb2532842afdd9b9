// Work in order on a device.
#ifndef COHORT_WORKER_CUDA_STREAM_H_
#define COHORT_WORKER_CUDA_STREAM_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// A stream of our own. It does not wait for the default stream, nor that one for it. Movable;
// destroyed with its holder, which does not wait: what is in it is still done. A moved-from one can
// be destroyed or assigned to. Thread-safe, as CUDA's are.
class Stream {
 public:
  enum class Priority { kNormal, kHigh };

  // Errors: as DescribeDevice, RESOURCE_EXHAUSTED.
  static absl::StatusOr<Stream> Create(int device, Priority priority = Priority::kNormal);

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

// The following take callers' streams as well as ours.

// Whether all that was enqueued is done. Errors: INTERNAL (the device failed), FAILED_PRECONDITION
// (it is being captured; the capture is lost).
absl::StatusOr<bool> IsIdle(cudaStream_t stream);

// Until what has been enqueued so far is done, whatever is enqueued meanwhile; never longer than
// until `deadline` (steady time). Errors: DEADLINE_EXCEEDED, and those of IsIdle.
absl::Status Synchronize(cudaStream_t stream, Instant deadline);

// Whether what is enqueued becomes a graph's. Errors: FAILED_PRECONDITION (another stream's capture
// is in the way).
absl::StatusOr<bool> IsCaptured(cudaStream_t stream);

// The device of a stream.
absl::StatusOr<int> DeviceOf(cudaStream_t stream);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_STREAM_H_
