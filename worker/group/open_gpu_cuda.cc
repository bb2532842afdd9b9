#include "base/status_macros.h"
#include "worker/communicator/nccl/loaded_nccl_api.h"
#include "worker/cuda/device.h"
#include "worker/group/cuda_plane.h"
#include "worker/group/open_gpu.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<DevicePlane>> OpenGpu(int device,
                                                     const DevicePlaneOptions& options) {
  COHORT_RETURN_IF_ERROR(cuda::DescribeDevice(device).status());
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<NcclApi> nccl, LoadNccl());
  return std::make_shared<CudaPlane>(std::move(nccl), device, options);
}

absl::StatusOr<int> CountGpus() { return cuda::DeviceCount(); }

}  // namespace cohort::worker
