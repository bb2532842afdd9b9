// Reads and checks layouts of tensors that clients send.
#ifndef COHORT_WORKER_DAEMON_TENSORS_TENSOR_LAYOUT_H_
#define COHORT_WORKER_DAEMON_TENSORS_TENSOR_LAYOUT_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "cohort/v1/worker.pb.h"

namespace cohort::worker {

struct TensorLayout {
  DataType type = DataType::kU8;
  Shape shape;
  Shape strides;
  bool contiguous = true;
  int64_t bytes = 0;  // of its elements without gaps
  // The offsets of the lowest and the highest element from the first one, in elements. Without
  // elements: 0 and -1.
  int64_t lowest = 0;
  int64_t highest = -1;
};

// Errors: INVALID_ARGUMENT (no such type, negative extents, sizes beyond 2^62 bytes, another number
// of strides than of extents, more than 16 dimensions).
absl::StatusOr<TensorLayout> ReadLayout(const v1::TensorLayout& layout);

// Returns a tensor of that layout in `bytes` of memory; its first element is element `first` of the
// memory. Errors: INVALID_ARGUMENT (an element lies outside).
absl::StatusOr<Tensor> ViewOf(char* memory, int64_t bytes, const TensorLayout& layout,
                              int64_t first, std::shared_ptr<const void> owner);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_TENSORS_TENSOR_LAYOUT_H_
