#include <utility>

#include "base/status_macros.h"
#include "worker/cuda/device.h"
#include "worker/group/cuda_gpu.h"
#include "worker/group/open_gpu.h"
#include "worker/group/open_shared_gpu.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<client::Gpu>> OpenGpuOfClient(int device) {
  COHORT_RETURN_IF_ERROR(cuda::DescribeDevice(device).status());
  return std::make_shared<CudaGpu>(device);
}

absl::StatusOr<GpuOfWorker> OpenGpuOfWorker(const std::string& uuid) {
  COHORT_ASSIGN_OR_RETURN(const int device, cuda::FindDevice(uuid));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<DevicePlane> plane, OpenGpu(device));
  return GpuOfWorker{std::make_shared<CudaGpu>(device), std::move(plane)};
}

}  // namespace cohort::worker
