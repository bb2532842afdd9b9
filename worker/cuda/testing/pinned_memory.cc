#include "worker/cuda/testing/pinned_memory.h"

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

}  // namespace cohort::worker::cuda
