#include <memory>

#include "base/status_macros.h"
#include "tests/fuzz/worker/fuzz_gpu.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/group/shared_gpu/cuda_gpu.h"

namespace cohort::worker::fuzz {

FuzzGpu MakeFuzzGpu() {
  cuda::ResetFakeRuntime(cuda::FakeMachine());
  FuzzGpu gpu;
  gpu.uuid = CudaGpu(0).Uuid().value_or("none");
  gpu.open = [](const std::string& uuid) -> absl::StatusOr<GpuOfWorker> {
    COHORT_ASSIGN_OR_RETURN(const int device, cuda::FindDevice(uuid));
    // No group is joined here.
    return GpuOfWorker{std::make_shared<CudaGpu>(device), nullptr};
  };
  return gpu;
}

}  // namespace cohort::worker::fuzz
