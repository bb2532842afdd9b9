#include "worker/cuda/memory/copy.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_error.h"

namespace cohort::worker::cuda {
namespace {

// The largest stride that CUDA takes (cudaDevAttrMaxPitch, the same on every device).
constexpr size_t kMaxStride = std::numeric_limits<int>::max();

}  // namespace

absl::Status Copy(void* to, const void* from, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return absl::OkStatus();
  const cudaError_t result = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
  if (result == cudaSuccess) return absl::OkStatus();
  return Of(absl::StrFormat("copy of %d bytes from %p to %p", bytes, from, to),
            ToStatus(result, "cudaMemcpyAsync"));
}

absl::Status CopyRows(void* to, size_t to_stride, const void* from, size_t from_stride,
                      size_t row_bytes, size_t rows, cudaStream_t stream) {
  if (row_bytes == 0 || rows == 0) return absl::OkStatus();
  if (to_stride == row_bytes && from_stride == row_bytes) {
    return Copy(to, from, row_bytes * rows, stream);
  }
  if (to_stride > kMaxStride || from_stride > kMaxStride) {
    for (size_t row = 0; row < rows; ++row) {
      COHORT_RETURN_IF_ERROR(Copy(static_cast<char*>(to) + row * to_stride,
                                  static_cast<const char*>(from) + row * from_stride, row_bytes,
                                  stream));
    }
    return absl::OkStatus();
  }
  const cudaError_t result = cudaMemcpy2DAsync(to, to_stride, from, from_stride, row_bytes, rows,
                                               cudaMemcpyDefault, stream);
  if (result == cudaSuccess) return absl::OkStatus();
  return Of(absl::StrFormat("copy of %d rows of %d bytes from %p (%d apart) to %p (%d apart)", rows,
                            row_bytes, from, from_stride, to, to_stride),
            ToStatus(result, "cudaMemcpy2DAsync"));
}

absl::Status Fill(void* memory, unsigned char byte, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return absl::OkStatus();
  const cudaError_t result = cudaMemsetAsync(memory, byte, bytes, stream);
  if (result == cudaSuccess) return absl::OkStatus();
  return Of(absl::StrFormat("filling %d bytes at %p", bytes, memory),
            ToStatus(result, "cudaMemsetAsync"));
}

}  // namespace cohort::worker::cuda
