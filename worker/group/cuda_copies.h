// Copies of a rank on its own GPU, or to it and from it.
#ifndef COHORT_WORKER_GROUP_CUDA_COPIES_H_
#define COHORT_WORKER_GROUP_CUDA_COPIES_H_

#include <optional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/mutex.h"
#include "client/collective/group.h"
#include "worker/cuda/stream.h"

namespace cohort::worker {

// Thread-safe.
class CudaCopies {
 public:
  explicit CudaCopies(int device) : device_(device) {}
  // Waits a while for copies that their calls did not wait for; what then does not end is kept.
  ~CudaCopies();

  // See client::Gpu::Copy. After an error the device may still copy: what owns the tensors is kept
  // until it does not.
  absl::Status Run(absl::Span<const client::TensorCopy> copies, std::optional<void*> stream,
                   absl::Duration timeout);

 private:
  // Copies that were not done when their call was, and what they use.
  struct Late {
    cuda::Stream stream;
    std::vector<client::TensorCopy> copies;
  };

  absl::StatusOr<cuda::Stream> TakeStream();
  // Forgets those that are done by now. How many are not.
  size_t Sweep();

  const int device_;
  Mutex mutex_;
  // Those that nobody uses: making one costs more than most copies.
  std::vector<cuda::Stream> idle_ ABSL_GUARDED_BY(mutex_);
  std::vector<Late> late_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_CUDA_COPIES_H_
