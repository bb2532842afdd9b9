// Opens the GPU of a rank. The module links open_real_device.cc, and that of the tests
// testing/fake_gpu/open_fake_device.cc.
#ifndef COHORT_CLIENT_PYTHON_CORE_OPEN_DEVICE_H_
#define COHORT_CLIENT_PYTHON_CORE_OPEN_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/group/gpu/gpu_context.h"

namespace cohort::python {

// As worker::OpenGpu.
absl::StatusOr<std::shared_ptr<worker::GpuContext>> OpenDevice(
    int device, const worker::GpuContextOptions& options, const std::string& nccl_library);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_OPEN_DEVICE_H_
