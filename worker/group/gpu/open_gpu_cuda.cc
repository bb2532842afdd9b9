#include "base/status_macros.h"
#include "worker/communicator/nccl/api/loaded_nccl_api.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/gpu/open_gpu.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<GpuContext>> OpenGpu(int device, const GpuContextOptions& options,
                                                    const std::string& nccl_library) {
  COHORT_RETURN_IF_ERROR(cuda::DescribeDevice(device).status());
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<NcclApi> nccl, LoadNccl(nccl_library));
  return std::make_shared<CudaGpuContext>(std::move(nccl), device, options);
}

absl::StatusOr<int> CountGpus() { return cuda::DeviceCount(); }

}  // namespace cohort::worker
