// A kind of memory in which tensors lie: memory for the duration of a call, and copies within it.
#ifndef COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_LOCATION_H_
#define COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_LOCATION_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/tensor/tensor.h"

namespace cohort::worker {

// Copies run in the order of the calls, and in order with the communicator's operations on the same
// location. They need not be done when the calls return. One thread at a time.
class TensorLocation {
 public:
  virtual ~TensorLocation() = default;

  // Returns a contiguous tensor of undefined value, in memory that the other ranks of the host can
  // map, if the location has such memory. Errors: RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) = 0;
  // Both have one type and shape, any layouts; they do not overlap, unless they are the same
  // elements.
  virtual absl::Status Copy(const Tensor& from, const Tensor& to) = 0;
  // Sets the bytes to zero.
  virtual absl::Status Clear(void* memory, int64_t bytes) = 0;
  // Returns when all copies are done. Errors: DEADLINE_EXCEEDED.
  virtual absl::Status Finish(Instant deadline) = 0;
};

// Memory of the process; `allocate` implements Allocate.
class HostLocation final : public TensorLocation {
 public:
  using Allocator = std::function<absl::StatusOr<Tensor>(DataType, const Shape&)>;
  explicit HostLocation(Allocator allocate) : allocate_(std::move(allocate)) {}

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

#endif  // COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_LOCATION_H_
