// Copies in the order of a stream.
#ifndef COHORT_WORKER_CUDA_COPY_H_
#define COHORT_WORKER_CUDA_COPY_H_

#include <cstddef>

#include "absl/status/status.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Between devices and host memory in any direction, which the addresses tell. They return once the
// copy is enqueued; with host memory that is not pinned they may wait for the stream, so pin it
// where that must not be. Source and destination do not overlap. Nothing to copy is no call.
// Errors: INVALID_ARGUMENT (beyond an allocation's end), naming bytes and addresses.

absl::Status Copy(void* to, const void* from, size_t bytes, cudaStream_t stream);

// `rows` of `row_bytes` each, which begin as many bytes apart as the strides say: no fewer than
// they have.
absl::Status CopyRows(void* to, size_t to_stride, const void* from, size_t from_stride,
                      size_t row_bytes, size_t rows, cudaStream_t stream);

// Each byte becomes `byte`. `memory` is of a device, or pinned.
absl::Status Fill(void* memory, unsigned char byte, size_t bytes, cudaStream_t stream);

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_COPY_H_
