#include "worker/cuda/streams/stream.h"

#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/streams/event.h"

namespace cohort::worker::cuda {

absl::StatusOr<Stream> Stream::Create(int device) {
  COHORT_ASSIGN_OR_RETURN(const CurrentDevice current, CurrentDevice::Set(device));
  cudaStream_t stream = nullptr;
  COHORT_RETURN_IF_ERROR(
      COHORT_CUDA_CALL(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking)));
  return Stream(stream, device);
}

Stream::~Stream() {
  if (stream_ == nullptr) return;
  LogIfError("a CUDA stream is not destroyed", COHORT_CUDA_CALL(cudaStreamDestroy(stream_)));
}

absl::StatusOr<bool> IsIdle(cudaStream_t stream) {
  const cudaError_t result = cudaStreamQuery(stream);
  if (result == cudaErrorNotReady) {
    cudaGetLastError();  // clears cudaErrorNotReady
    return false;
  }
  COHORT_RETURN_IF_ERROR(ToStatus(result, "cudaStreamQuery"));
  return true;
}

absl::Status Synchronize(cudaStream_t stream, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const bool idle, IsIdle(stream));
  if (idle) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const int device, DeviceOf(stream));
  COHORT_ASSIGN_OR_RETURN(Event event, Event::Create(device));
  COHORT_RETURN_IF_ERROR(event.Record(stream));
  return event.Wait(deadline);
}

absl::StatusOr<bool> IsCaptured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaStreamIsCapturing(stream, &status)));
  return status != cudaStreamCaptureStatusNone;
}

absl::StatusOr<int> DeviceOf(cudaStream_t stream) {
  int device = 0;
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaStreamGetDevice(stream, &device)));
  return device;
}

}  // namespace cohort::worker::cuda
