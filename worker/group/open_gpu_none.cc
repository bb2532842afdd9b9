#include "absl/strings/str_cat.h"
#include "worker/group/open_gpu.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<DevicePlane>> OpenGpu(int device,
                                                     const DevicePlaneOptions& /*options*/) {
  return absl::UnimplementedError(
      absl::StrCat("no GPU ", device, ": this program was built where there was no CUDA toolkit"));
}

}  // namespace cohort::worker
