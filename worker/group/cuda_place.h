// Tensors of a GPU.
#ifndef COHORT_WORKER_GROUP_CUDA_PLACE_H_
#define COHORT_WORKER_GROUP_CUDA_PLACE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/event.h"
#include "worker/group/tensor_place.h"

namespace cohort::worker {

// Memory of cudaMalloc. Errors: RESOURCE_EXHAUSTED, INVALID_ARGUMENT (a negative extent).
absl::StatusOr<Tensor> AllocateOnDevice(int device, DataType type, const Shape& shape);

// Enqueues a copy of any layout, in two dimensions at once. A layout that needs many such, as a
// transposition does, takes some microseconds for each. Errors: as CheckCopy, and those of
// cuda::Copy.
absl::Status CopyOnStream(const Tensor& from, const Tensor& to, cudaStream_t stream);

// On a stream of the group's, whose work is waited for.
class CudaPlace final : public TensorPlace {
 public:
  // `stream` is of `device`, and outlives it. Errors: those of cuda::Event.
  static absl::StatusOr<std::unique_ptr<CudaPlace>> Create(int device, cudaStream_t stream);

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override;
  absl::Status Copy(const Tensor& from, const Tensor& to) override {
    return CopyOnStream(from, to, stream_);
  }
  absl::Status Clear(void* memory, int64_t bytes) override;
  absl::Status Finish(Instant deadline) override;

 private:
  CudaPlace(int device, cudaStream_t stream, cuda::Event done)
      : device_(device), stream_(stream), done_(std::move(done)) {}

  const int device_;
  const cudaStream_t stream_;
  cuda::Event done_;
};

// On a caller's stream, whose work is not waited for: memory comes and goes in its order. For the
// time of a call.
class CudaStreamPlace final : public TensorPlace {
 public:
  // Both outlive what is allocated. `kept`: where memory stays, of a stream that is being captured,
  // whose work will be done again; null: it goes in the stream's order.
  CudaStreamPlace(int device, cudaStream_t stream, std::vector<Tensor>* kept = nullptr)
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

#endif  // COHORT_WORKER_GROUP_CUDA_PLACE_H_
