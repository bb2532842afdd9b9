// Locations on a GPU: tensors in its memory, and copies in the order of a stream.
#ifndef COHORT_WORKER_GROUP_GPU_CUDA_LOCATION_H_
#define COHORT_WORKER_GROUP_GPU_CUDA_LOCATION_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/streams/event.h"
#include "worker/group/collectives/tensor_location.h"

namespace cohort::worker {

// Uses cudaMalloc. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (a negative extent).
absl::StatusOr<Tensor> AllocateOnDevice(int device, DataType type, const Shape& shape);

// Enqueues a copy between any layouts. One operation of CUDA copies two dimensions at once. A
// layout that needs many operations, such as a transposition, takes some microseconds for each.
// Errors: those of CheckCopy and cuda::Copy.
absl::Status CopyOnStream(const Tensor& from, const Tensor& to, cudaStream_t stream);

// A location on a stream of the group; the group waits for the stream's work.
class CudaLocation final : public TensorLocation {
 public:
  // `stream` is of `device`, and outlives the location. Errors: those of cuda::Event.
  static absl::StatusOr<std::unique_ptr<CudaLocation>> Create(int device, cudaStream_t stream);

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override;
  absl::Status Copy(const Tensor& from, const Tensor& to) override {
    return CopyOnStream(from, to, stream_);
  }
  absl::Status Clear(void* memory, int64_t bytes) override;
  absl::Status Finish(Instant deadline) override;

 private:
  CudaLocation(int device, cudaStream_t stream, cuda::Event done)
      : device_(device), stream_(stream), done_(std::move(done)) {}

  const int device_;
  const cudaStream_t stream_;
  cuda::Event done_;
};

// A location on a caller's stream, for the time of one call. No thread waits for the stream's work:
// memory is allocated and freed in its order.
class CudaStreamLocation final : public TensorLocation {
 public:
  // The stream and `kept` outlive all allocated memory. If the stream is being captured, its work
  // will run again: `kept` then holds the memory. Null: memory is freed in the stream's order.
  CudaStreamLocation(int device, cudaStream_t stream, std::vector<Tensor>* kept = nullptr)
      : device_(device), stream_(stream), kept_(kept) {}

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override;
  absl::Status Copy(const Tensor& from, const Tensor& to) override {
    return CopyOnStream(from, to, stream_);
  }
  absl::Status Clear(void* memory, int64_t bytes) override;
  absl::Status Finish(Instant /*deadline*/) override { return absl::OkStatus(); }

 private:
  const int device_;
  const cudaStream_t stream_;
  std::vector<Tensor>* const kept_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GPU_CUDA_LOCATION_H_
