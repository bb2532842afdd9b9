// Opens a rank's GPU, in programs that are also built without a CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_GPU_OPEN_GPU_H_
#define COHORT_WORKER_GROUP_GPU_OPEN_GPU_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "worker/group/gpu/gpu_context.h"

namespace cohort::worker {

// Opens the GPU with CUDA's number `device`, and loads NCCL, as LoadNccl(nccl_library) does. Errors:
// UNIMPLEMENTED (built without CUDA), INVALID_ARGUMENT (no such device), FAILED_PRECONDITION (no
// device, no driver, or NCCL too old; says what to do), NOT_FOUND (no NCCL; lists the paths that
// were tried).
absl::StatusOr<std::shared_ptr<GpuContext>> OpenGpu(int device,
                                                    const GpuContextOptions& options = {},
                                                    const std::string& nccl_library = "");
// Returns at least one. Errors: those of OpenGpu, except NCCL's.
absl::StatusOr<int> CountGpus();

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GPU_OPEN_GPU_H_
