// GPUs that a client and its worker daemon share, in programs that are also built where there is no
// CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_OPEN_SHARED_GPU_H_
#define COHORT_WORKER_GROUP_OPEN_SHARED_GPU_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/collective/gpu.h"
#include "worker/group/gpu_of_worker.h"

namespace cohort::worker {

// Of a client of a worker, for RemoteGroupOptions::gpu; by CUDA's number of it. NCCL is the
// worker's to have. Errors: those of OpenGpu, but for NCCL's.
absl::StatusOr<std::shared_ptr<client::Gpu>> OpenGpuOfClient(int device);

// Of a worker, for a client whose GPU has that name. Errors: those of OpenGpu; FAILED_PRECONDITION
// (this process does not see it).
absl::StatusOr<GpuOfWorker> OpenGpuOfWorker(const std::string& uuid);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_OPEN_SHARED_GPU_H_
