#include "worker/group/gpu/open_gpu.h"

namespace cohort::worker {
namespace {

absl::Status NoCuda() {
  return absl::UnimplementedError(
      "there are no GPUs: this program was built without GPU code");
}

}  // namespace

absl::StatusOr<std::shared_ptr<GpuContext>> OpenGpu(int /*device*/,
                                                    const GpuContextOptions& /*options*/,
                                                    const std::string& /*nccl_library*/) {
  return NoCuda();
}

absl::StatusOr<int> CountGpus() { return NoCuda(); }

}  // namespace cohort::worker
