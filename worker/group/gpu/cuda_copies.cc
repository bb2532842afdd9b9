#include "worker/group/gpu/cuda_copies.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/streams/poll_until.h"
#include "worker/group/gpu/cuda_location.h"

namespace cohort::worker {
namespace {

// How long the destructor waits for late copies.
constexpr absl::Duration kTimeout = absl::Seconds(5);

absl::Status Enqueue(absl::Span<const client::TensorCopy> copies, cudaStream_t stream) {
  for (const client::TensorCopy& copy : copies) {
    COHORT_RETURN_IF_ERROR(CopyOnStream(copy.from, copy.to, stream));
  }
  return absl::OkStatus();
}

}  // namespace

CudaCopies::~CudaCopies() {
  const auto none_left = [this]() -> absl::StatusOr<bool> { return Sweep() == 0; };
  const absl::StatusOr<bool> done = cuda::PollUntil(none_left, Clock::Steady().Now() + kTimeout);
  if (done.ok() && *done) return;
  MutexLock lock(&mutex_);
  Log(LogLevel::kError, "copies on a GPU do not finish: their memory is kept",
      {{"device", device_}, {"calls", static_cast<int64_t>(late_.size())}});
  static_cast<void>(new std::vector<Late>(std::move(late_)));
}

absl::StatusOr<cuda::Stream> CudaCopies::TakeStream() {
  {
    MutexLock lock(&mutex_);
    if (!idle_.empty()) {
      cuda::Stream stream = std::move(idle_.back());
      idle_.pop_back();
      return stream;
    }
  }
  return cuda::Stream::Create(device_);
}

size_t CudaCopies::Sweep() {
  std::vector<Late> done;  // ended after the unlock
  MutexLock lock(&mutex_);
  for (size_t i = 0; i < late_.size();) {
    const absl::StatusOr<bool> idle = cuda::IsIdle(late_[i].stream.get());
    // A failed device does no more work. FAILED_PRECONDITION means that a capture prevents the
    // query; the copy may still run.
    if (idle.ok() ? !*idle : absl::IsFailedPrecondition(idle.status())) {
      ++i;
      continue;
    }
    std::swap(late_[i], late_.back());
    done.push_back(std::move(late_.back()));
    late_.pop_back();
  }
  return late_.size();
}

absl::Status CudaCopies::Run(absl::Span<const client::TensorCopy> copies,
                             std::optional<void*> stream, absl::Duration timeout) {
  if (stream.has_value()) {
    COHORT_ASSIGN_OR_RETURN(const auto at_device, cuda::AtDeviceOf(*stream, device_));
    return Enqueue(copies, static_cast<cudaStream_t>(*stream));
  }
  const Instant deadline = Clock::Steady().Now() + timeout;
  Sweep();
  COHORT_ASSIGN_OR_RETURN(cuda::Stream own, TakeStream());
  absl::Status status = Enqueue(copies, own.get());
  // Copies that were enqueued before an error use their tensors.
  absl::Status done = cuda::Synchronize(own.get(), deadline);
  MutexLock lock(&mutex_);
  if (done.ok()) {
    idle_.push_back(std::move(own));
    return status;
  }
  late_.push_back({std::move(own), {copies.begin(), copies.end()}});
  status.Update(
      absl::Status(done.code(), absl::StrCat(done.message(),
                                             "; the device may still read and write the tensors "
                                             "of this copy")));
  return status;
}

}  // namespace cohort::worker
