// A GPU of this process, used through CUDA and NCCL.
#ifndef COHORT_WORKER_GROUP_GPU_CUDA_GPU_CONTEXT_H_
#define COHORT_WORKER_GROUP_GPU_CUDA_GPU_CONTEXT_H_

#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "worker/communicator/nccl/api/nccl_api.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/group/gpu/cuda_copies.h"
#include "worker/group/gpu/device_heap.h"
#include "worker/group/gpu/gpu_context.h"

namespace cohort::worker {

class CudaGpuContext final : public GpuContext {
 public:
  CudaGpuContext(std::shared_ptr<NcclApi> nccl, int device, const GpuContextOptions& options = {})
      : nccl_(std::move(nccl)), device_(device), options_(options) {}

  Device device() const override { return Device::Cuda(device_); }
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override;
  absl::Status Copy(absl::Span<const client::TensorCopy> copies, std::optional<void*> stream,
                    absl::Duration timeout) override {
    return copies_.Run(copies, stream, timeout);
  }
  absl::Status AwaitStream(void* stream, absl::Duration timeout) override;
  absl::StatusOr<std::unique_ptr<DeviceSide>> Form(
      UniqueIdExchange& ids, Communicator& host,
      std::shared_ptr<const NcclOperationLog> operation_log, DeviceProgress* progress,
      absl::Duration timeout) override;

 private:
  // Makes the heap on the first call. Null: the options ask for no heap, or there was no memory for
  // it.
  std::shared_ptr<DeviceHeap> Heap(Instant deadline);
  // Registers the heap with all ranks of the group, if all have one. Errors: those that end the
  // group.
  absl::Status RegisterHeap(NcclCommunicator& group, Instant deadline);

  const std::shared_ptr<NcclApi> nccl_;
  const int device_;
  const GpuContextOptions options_;
  CudaCopies copies_{device_};
  Mutex mutex_;
  bool asked_for_heap_ ABSL_GUARDED_BY(mutex_) = false;
  std::shared_ptr<DeviceHeap> heap_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GPU_CUDA_GPU_CONTEXT_H_
