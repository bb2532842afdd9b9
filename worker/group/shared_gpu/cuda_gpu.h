// A GPU of this process, used through CUDA alone, without NCCL.
#ifndef COHORT_WORKER_GROUP_SHARED_GPU_CUDA_GPU_H_
#define COHORT_WORKER_GROUP_SHARED_GPU_CUDA_GPU_H_

#include <memory>
#include <string>

#include "worker/group/gpu/cuda_copies.h"
#include "worker/group/shared_gpu/shared_gpu.h"

namespace cohort::worker {

class CudaGpu final : public SharedGpu {
 public:
  explicit CudaGpu(int device) : device_(device) {}

  Device device() const override { return Device::Cuda(device_); }
  absl::StatusOr<std::string> Uuid() const override;
  // Uses cuMemCreate, in whole units of mostly 2 MiB, or cudaMalloc if the device does not support
  // it.
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override;
  absl::Status Copy(absl::Span<const client::TensorCopy> copies, std::optional<void*> stream,
                    absl::Duration timeout) override {
    return copies_.Run(copies, stream, timeout);
  }
  absl::StatusOr<Exported> Export(const void* memory, int64_t bytes) override;
  absl::StatusOr<std::unique_ptr<client::StreamFlags>> Pin(void* memory, int64_t bytes) override;
  absl::StatusOr<Imported> Import(const client::DeviceMemory& memory, UniqueFd fd) override;
  absl::StatusOr<std::shared_ptr<void>> NewStream() override;

 private:
  const int device_;
  CudaCopies copies_{device_};
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SHARED_GPU_CUDA_GPU_H_
