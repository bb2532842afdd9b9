// Copies of a rank on its own GPU, or between the GPU and host memory.
#ifndef COHORT_WORKER_GROUP_GPU_CUDA_COPIES_H_
#define COHORT_WORKER_GROUP_GPU_CUDA_COPIES_H_

#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/threads/mutex.h"
#include "client/collective/group.h"
#include "worker/cuda/streams/stream.h"

namespace cohort::worker {

// Thread-safe.
class CudaCopies {
 public:
  explicit CudaCopies(int device) : device_(device) {}
  // Waits at most five seconds for copies that timed out. Never frees tensors that are still in use
  // then.
  ~CudaCopies();

  // See GpuContext::Copy. After an error the device may still copy: the owners of the tensors are
  // kept until it is done.
  absl::Status Run(absl::Span<const client::TensorCopy> copies, std::optional<void*> stream,
                   absl::Duration timeout);

 private:
  // Copies that were not done when their call timed out, and their tensors.
  struct Late {
    cuda::Stream stream;
    std::vector<client::TensorCopy> copies;
  };

  absl::StatusOr<cuda::Stream> TakeStream();
  // Forgets the copies that are done by now. Returns how many are not.
  size_t Sweep();

  const int device_;
  Mutex mutex_;
  // Streams that are not in use: creating one costs more than most copies.
  std::vector<cuda::Stream> idle_ ABSL_GUARDED_BY(mutex_);
  std::vector<Late> late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GPU_CUDA_COPIES_H_
