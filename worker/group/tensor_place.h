// Where tensors of one kind lie, as verbs need to know it: room there for the time of a call, and
// copies within.
#ifndef COHORT_WORKER_GROUP_TENSOR_PLACE_H_
#define COHORT_WORKER_GROUP_TENSOR_PLACE_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/tensor.h"

namespace cohort::worker {

// Copies are done in the order of the calls, and in that of the communicator's operations on the
// same place, but need not be done when they return. One thread at a time.
class TensorPlace {
 public:
  virtual ~TensorPlace() = default;

  // Contiguous elements of no defined value: where the other ranks of the host see them, if there
  // is such a place. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) = 0;
  // Of one type and shape, whatever the layouts; the two do not overlap, unless they are the same.
  virtual absl::Status Copy(const Tensor& from, const Tensor& to) = 0;
  // To zeros.
  virtual absl::Status Clear(void* memory, int64_t bytes) = 0;
  // Returns when all copies are done. Errors: DEADLINE_EXCEEDED.
  virtual absl::Status Finish(Instant deadline) = 0;
};

// Memory of the process. `allocate` gives what Allocate does.
class HostPlace final : public TensorPlace {
 public:
  using Allocator = std::function<absl::StatusOr<Tensor>(DataType, const Shape&)>;
  explicit HostPlace(Allocator allocate) : allocate_(std::move(allocate)) {}

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override {
    return allocate_(type, shape);
  }
  absl::Status Copy(const Tensor& from, const Tensor& to) override { return CopyTensor(from, to); }
  absl::Status Clear(void* memory, int64_t bytes) override;
  absl::Status Finish(Instant deadline) override;

 private:
  const Allocator allocate_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TENSOR_PLACE_H_
