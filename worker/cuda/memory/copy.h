// Copies in the order of a stream.
#ifndef COHORT_WORKER_CUDA_MEMORY_COPY_H_
#define COHORT_WORKER_CUDA_MEMORY_COPY_H_

#include <cstddef>

#include "absl/status/status.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// The addresses determine the direction of a copy: between devices and host memory, in any
// combination. A copy returns once it is enqueued. If host memory is not pinned, it may wait for
// the stream; pin memory to avoid that. Source and destination do not overlap. A copy of no bytes
// makes no call of CUDA. Errors: INVALID_ARGUMENT (beyond an allocation's end), naming bytes and
// addresses.

absl::Status Copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

// Copies `rows` rows of `row_bytes` bytes. They begin as many bytes apart as the strides say; a
// stride is at least `row_bytes`.
absl::Status CopyRows(void* to, size_t to_stride, const void* from, size_t from_stride,
                      size_t row_bytes, size_t rows, cudaStream_t stream);

// Sets each byte to `byte`. The memory is a device's, or pinned.
absl::Status Fill(void* memory, unsigned char byte, size_t bytes, cudaStream_t stream);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_MEMORY_COPY_H_
