#include "worker/cuda/memory/device_memory.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/cuda_error.h"

namespace cohort::worker::cuda {

absl::StatusOr<DeviceMemory> DeviceMemory::Allocate(int device, size_t bytes) {
  COHORT_ASSIGN_OR_RETURN(const CurrentDevice current, CurrentDevice::Set(device));
  if (bytes == 0) return DeviceMemory(nullptr, 0, device);
  void* data = nullptr;
  COHORT_RETURN_IF_ERROR(Of(absl::StrCat("memory of ", bytes, " bytes on CUDA device ", device),
                            COHORT_CUDA_CALL(cudaMalloc(&data, bytes))));
  return DeviceMemory(static_cast<char*>(data), bytes, device);
}

DeviceMemory::~DeviceMemory() { LogIfError("CUDA memory is not freed", Free()); }

absl::Status DeviceMemory::Free() {
  size_ = 0;
  char* const data = std::exchange(data_, nullptr);
  if (data == nullptr) return absl::OkStatus();
  return COHORT_CUDA_CALL(cudaFree(data));
}

absl::StatusOr<StreamMemory> StreamMemory::Allocate(cudaStream_t stream, size_t bytes) {
  if (bytes == 0) return StreamMemory();
  void* data = nullptr;
  COHORT_RETURN_IF_ERROR(Of(absl::StrCat("memory of ", bytes, " bytes in the order of a stream"),
                            COHORT_CUDA_CALL(cudaMallocAsync(&data, bytes, stream))));
  return StreamMemory(static_cast<char*>(data), bytes, stream);
}

StreamMemory::~StreamMemory() {
  if (data_ == nullptr) return;
  LogIfError("CUDA memory of a stream is not freed",
             COHORT_CUDA_CALL(cudaFreeAsync(data_, stream_)));
}

}  // namespace cohort::worker::cuda
