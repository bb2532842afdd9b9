// A GPU of this process, by CUDA and NCCL.
#ifndef COHORT_WORKER_GROUP_CUDA_PLANE_H_
#define COHORT_WORKER_GROUP_CUDA_PLANE_H_

#include <memory>
#include <utility>

#include "worker/communicator/nccl/nccl_api.h"
#include "worker/group/device_plane.h"

namespace cohort::worker {

class CudaPlane final : public DevicePlane {
 public:
  CudaPlane(std::shared_ptr<NcclApi> nccl, int device) : nccl_(std::move(nccl)), device_(device) {}

  Device device() const override { return Device::Cuda(device_); }
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override;
  absl::Status Copy(const Tensor& from, const Tensor& to, Instant deadline) override;
  absl::StatusOr<std::unique_ptr<DeviceSide>> Form(client::ProcessGroup& group, Communicator& host,
                                                   DeviceProgress* progress,
                                                   absl::Duration timeout) override;

 private:
  const std::shared_ptr<NcclApi> nccl_;
  const int device_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_CUDA_PLANE_H_
