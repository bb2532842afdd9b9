// A GPU whose memory and streams several processes share: a daemon uses it for a client. An
// interface, so that daemons are also built without a CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_SHARED_GPU_SHARED_GPU_H_
#define COHORT_WORKER_GROUP_SHARED_GPU_SHARED_GPU_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/collective/remote/gpu.h"

namespace cohort::worker {

class SharedGpu : public client::Gpu {
 public:
  // Memory of another process, mapped here until `owner` goes. By then no enqueued work may use it.
  struct Imported {
    char* data = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<const void> owner;
  };
  // Maps a client's memory. Checks the client's description against CUDA's. `fd` is not open if the
  // memory has a legacy handle. Errors: INVALID_ARGUMENT (the description is invalid, or of another
  // device), FAILED_PRECONDITION (this process is the owner itself), RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<Imported> Import(const client::DeviceMemory& memory, UniqueFd fd) = 0;

  // Returns a new cudaStream_t, which lasts until the last copy of the pointer goes; enqueued work
  // then still completes. Errors: those of CUDA.
  virtual absl::StatusOr<std::shared_ptr<void>> NewStream() = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SHARED_GPU_SHARED_GPU_H_
