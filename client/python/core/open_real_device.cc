#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/python/core/open_device.h"
#include "worker/group/gpu/open_gpu.h"

namespace cohort::python {

absl::StatusOr<std::shared_ptr<worker::GpuContext>> OpenDevice(
    int device, const worker::GpuContextOptions& options, const std::string& nccl_library) {
  return worker::OpenGpu(device, options, nccl_library);
}

}  // namespace cohort::python
