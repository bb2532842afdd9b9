// Opens a GPU that a client and its worker daemon share, in programs that are also built without a
// CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_SHARED_GPU_OPEN_SHARED_GPU_H_
#define COHORT_WORKER_GROUP_SHARED_GPU_OPEN_SHARED_GPU_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "client/collective/remote/gpu.h"
#include "worker/group/shared_gpu/gpu_of_worker.h"

namespace cohort::worker {

// Opens a GPU in a worker's client, by CUDA's number, for RemoteGroupOptions::gpu. The client needs
// no NCCL; the worker loads it. Errors: those of OpenGpu, except NCCL's.
absl::StatusOr<std::shared_ptr<client::Gpu>> OpenGpuOfClient(int device);

// Opens a client's GPU in a worker, by its UUID. Errors: those of OpenGpu; FAILED_PRECONDITION
// (this process does not see it).
absl::StatusOr<GpuOfWorker> OpenGpuOfWorker(const std::string& uuid);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SHARED_GPU_OPEN_SHARED_GPU_H_
