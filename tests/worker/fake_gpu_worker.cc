// cohort-worker on a machine whose GPUs are host memory and threads, with a fake NCCL among them.
// All ranks of a group live in it, because the fake NCCL requires that.
#include <memory>
#include <string>
#include <utility>

#include "base/status_macros.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/daemon/run_worker.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/shared_gpu/cuda_gpu.h"

int main(int argc, char** argv) {
  using namespace cohort::worker;
  cuda::FakeMachine machine;
  machine.devices = 3;
  cuda::ResetFakeRuntime(machine);
  const auto nccl = std::make_shared<FakeNcclApi>();
  return RunWorker(argc, argv, [nccl](const std::string& uuid) -> absl::StatusOr<GpuOfWorker> {
    COHORT_ASSIGN_OR_RETURN(const int device, cuda::FindDevice(uuid));
    return GpuOfWorker{std::make_shared<CudaGpu>(device),
                       std::make_shared<CudaGpuContext>(nccl, device)};
  });
}
