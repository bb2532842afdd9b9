#include "worker/cuda/memory/pinned_memory.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/device/cuda_error.h"

namespace cohort::worker::cuda {

absl::StatusOr<PinnedMemory> PinnedMemory::Allocate(size_t bytes) {
  if (bytes == 0) return PinnedMemory();
  void* data = nullptr;
  COHORT_RETURN_IF_ERROR(Of(
      absl::StrCat("pinned host memory of ", bytes, " bytes"),
      COHORT_CUDA_CALL(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped))));
  return PinnedMemory(static_cast<char*>(data), bytes);
}

PinnedMemory::~PinnedMemory() {
  if (data_ == nullptr) return;
  LogIfError("pinned host memory is not freed", COHORT_CUDA_CALL(cudaFreeHost(data_)));
}

absl::StatusOr<RegisteredMemory> RegisteredMemory::Register(void* memory, size_t bytes) {
  COHORT_RETURN_IF_ERROR(
      Of(absl::StrCat("pinning host memory of ", bytes, " bytes"),
         COHORT_CUDA_CALL(
             cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped))));
  RegisteredMemory registered(static_cast<char*>(memory), bytes);
  void* on_device = nullptr;
  COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaHostGetDevicePointer(&on_device, memory, 0)));
  registered.device_data_ = static_cast<char*>(on_device);
  return registered;
}

RegisteredMemory::~RegisteredMemory() {
  if (data_ == nullptr) return;
  LogIfError("host memory stays pinned", COHORT_CUDA_CALL(cudaHostUnregister(data_)));
}

}  // namespace cohort::worker::cuda
