#include <utility>

#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/group/gpu/open_gpu.h"
#include "worker/group/shared_gpu/cuda_gpu.h"
#include "worker/group/shared_gpu/open_shared_gpu.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<client::Gpu>> OpenGpuOfClient(int device) {
  COHORT_RETURN_IF_ERROR(cuda::DescribeDevice(device).status());
  return std::make_shared<CudaGpu>(device);
}

absl::StatusOr<GpuOfWorker> OpenGpuOfWorker(const std::string& uuid) {
  COHORT_ASSIGN_OR_RETURN(const int device, cuda::FindDevice(uuid));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<GpuContext> gpu, OpenGpu(device));
  return GpuOfWorker{std::make_shared<CudaGpu>(device), std::move(gpu)};
}

}  // namespace cohort::worker
