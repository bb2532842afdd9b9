// A GPU whose memory and streams processes share: what a daemon needs to work for a client. An
// interface, so that daemons are also built where there is no CUDA toolkit.
#ifndef COHORT_WORKER_GROUP_SHARED_GPU_H_
#define COHORT_WORKER_GROUP_SHARED_GPU_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "client/collective/gpu.h"

namespace cohort::worker {

class SharedGpu : public client::Gpu {
 public:
  // Memory of another process, mapped here until `owner` goes, by when nothing enqueued may use it.
  struct Imported {
    char* data = nullptr;
    int64_t bytes = 0;
    std::shared_ptr<const void> owner;
  };
  // What a client says is checked against what CUDA says. `fd` is closed where a legacy handle
  // came. Errors: INVALID_ARGUMENT (it makes no sense, or is of another device),
  // FAILED_PRECONDITION (this process is the owner itself), RESOURCE_EXHAUSTED.
  virtual absl::StatusOr<Imported> Import(const client::DeviceMemory& memory, UniqueFd fd) = 0;

  // A cudaStream_t of its own, until the last copy goes; what is enqueued is still done then.
  // Errors: those of CUDA.
  virtual absl::StatusOr<std::shared_ptr<void>> NewStream() = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SHARED_GPU_H_
