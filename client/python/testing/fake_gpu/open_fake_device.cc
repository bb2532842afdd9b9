// GPUs made of host memory, which all ranks of this process share, with the fakes of CUDA and NCCL.
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/python/core/open_device.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/group/gpu/cuda_gpu_context.h"

namespace cohort::python {
namespace {

constexpr int kDevices = 4;

std::shared_ptr<worker::FakeNcclApi> Nccl() {
  static const auto& nccl = *new std::shared_ptr<worker::FakeNcclApi>([] {
    worker::cuda::FakeMachine machine;
    machine.devices = kDevices;
    machine.peer_access = true;
    worker::cuda::ResetFakeRuntime(machine);
    return std::make_shared<worker::FakeNcclApi>();
  }());
  return nccl;
}

}  // namespace

absl::StatusOr<std::shared_ptr<worker::GpuContext>> OpenDevice(
    int device, const worker::GpuContextOptions& options, const std::string& /*nccl_library*/) {
  const std::shared_ptr<worker::FakeNcclApi> nccl = Nccl();
  if (device < 0 || device >= kDevices) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no GPU ", device, "; this machine has ", kDevices));
  }
  return std::make_shared<worker::CudaGpuContext>(nccl, device, options);
}

}  // namespace cohort::python
