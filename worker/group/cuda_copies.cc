#include "worker/group/cuda_copies.h"

#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/cuda/device.h"
#include "worker/group/cuda_place.h"

namespace cohort::worker {
namespace {

absl::Status Enqueue(absl::Span<const client::TensorCopy> copies, cudaStream_t stream) {
  for (const client::TensorCopy& copy : copies) {
    COHORT_RETURN_IF_ERROR(CopyOnStream(copy.from, copy.to, stream));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CudaCopies::Run(absl::Span<const client::TensorCopy> copies,
                             std::optional<void*> stream, absl::Duration timeout) {
  if (stream.has_value()) {
    COHORT_ASSIGN_OR_RETURN(const auto at_device, cuda::AtDeviceOf(*stream, device_));
    return Enqueue(copies, static_cast<cudaStream_t>(*stream));
  }
  const Instant deadline = Clock::Steady().Now() + timeout;
  std::optional<cuda::Stream> own;
  {
    MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      own = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!own.has_value()) {
    COHORT_ASSIGN_OR_RETURN(own, cuda::Stream::Create(device_));
  }
  absl::Status status = Enqueue(copies, own->get());
  // What was enqueued before one that failed uses its tensors.
  const absl::Status done = cuda::Synchronize(own->get(), deadline);
  if (done.ok()) {
    MutexLock lock(&mutex_);
    idle_.push_back(*std::move(own));
  }
  status.Update(done);
  return status;
}

}  // namespace cohort::worker
