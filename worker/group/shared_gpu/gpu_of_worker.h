// A GPU of a worker daemon, shared with the clients that use the same GPU.
#ifndef COHORT_WORKER_GROUP_SHARED_GPU_GPU_OF_WORKER_H_
#define COHORT_WORKER_GROUP_SHARED_GPU_GPU_OF_WORKER_H_

#include <memory>

#include "worker/group/gpu/gpu_context.h"
#include "worker/group/shared_gpu/shared_gpu.h"

namespace cohort::worker {

struct GpuOfWorker {
  std::shared_ptr<SharedGpu> gpu;      // for clients' memory and streams
  std::shared_ptr<GpuContext> gpu_context;  // for ranks
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SHARED_GPU_GPU_OF_WORKER_H_
