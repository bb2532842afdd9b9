// The GPU of a rank, in programs that are also built where there is no CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_OPEN_GPU_H_
#define COHORT_WORKER_GROUP_OPEN_GPU_H_

#include <memory>

#include "absl/status/statusor.h"
#include "worker/group/device_plane.h"

namespace cohort::worker {

// By CUDA's number of it. Loads NCCL. Errors: UNIMPLEMENTED (built without CUDA), INVALID_ARGUMENT
// (no such device), FAILED_PRECONDITION (no device, no driver, or NCCL too old; what to do),
// NOT_FOUND (no NCCL; what was tried).
absl::StatusOr<std::shared_ptr<DevicePlane>> OpenGpu(int device,
                                                     const DevicePlaneOptions& options = {});
// At least one. Errors: as OpenGpu, but for those of NCCL.
absl::StatusOr<int> CountGpus();

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_OPEN_GPU_H_
