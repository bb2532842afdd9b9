#include "worker/cuda/streams/event.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/streams/poll_until.h"

namespace cohort::worker::cuda {

absl::StatusOr<Event> Event::Create(int device, Timing timing) {
  COHORT_ASSIGN_OR_RETURN(const CurrentDevice current, CurrentDevice::Set(device));
  cudaEvent_t event = nullptr;
  const unsigned int flags = timing == Timing::kOn ? cudaEventDefault : cudaEventDisableTiming;
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaEventCreateWithFlags(&event, flags)));
  return Event(event, device);
}

Event::~Event() {
  if (event_ == nullptr) return;
  LogIfError("a CUDA event is not destroyed", COHORT_CUDA_CALL(cudaEventDestroy(event_)));
}

absl::Status Event::Record(cudaStream_t stream) {
  return COHORT_CUDA_CALL(cudaEventRecord(event_, stream));
}

absl::StatusOr<bool> Event::Query() const {
  const cudaError_t result = cudaEventQuery(event_);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // clears cudaErrorNotReady
    return false;
  }
  COHORT_RETURN_IF_ERROR(ToStatus(result, "cudaEventQuery"));
  return true;
}

absl::Status Event::Wait(Instant deadline) const {
  const Instant start = Clock::Steady().Now();
  COHORT_ASSIGN_OR_RETURN(const bool done, PollUntil([this] { return Query(); }, deadline));
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the work of a stream on CUDA device ", device_, " is not done after ",
                   absl::FormatDuration(Clock::Steady().Now() - start)));
}

absl::Status Event::HoldBack(cudaStream_t stream) const {
  return COHORT_CUDA_CALL(cudaStreamWaitEvent(stream, event_, cudaEventWaitDefault));
}

absl::StatusOr<absl::Duration> Event::Elapsed(const Event& start, const Event& end) {
  float milliseconds = 0;
  COHORT_RETURN_IF_ERROR(
      COHORT_CUDA_CALL(cudaEventElapsedTime(&milliseconds, start.event_, end.event_)));
  return absl::Milliseconds(milliseconds);
}

}  // namespace cohort::worker::cuda
