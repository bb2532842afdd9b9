// Device memory that NCCL can move from and to without copies.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_MEMORY_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_MEMORY_H_

#include <cstddef>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "worker/communicator/nccl/api/nccl_api.h"
#include "worker/cuda/memory/shareable_memory.h"

namespace cohort::worker {

// Memory from ncclMemAlloc, or from cuMemCreate if NCCL cannot allocate it. Its holder shares it
// with the groups that it is registered with. When the last of them releases it, no enqueued work
// may use it any more; freeing it waits for the device.
class NcclMemory {
 public:
  // Errors: INVALID_ARGUMENT (no bytes), RESOURCE_EXHAUSTED (naming bytes and device),
  // DEADLINE_EXCEEDED (another group's call of NCCL does not return), and those of CUDA.
  static absl::StatusOr<std::shared_ptr<NcclMemory>> Allocate(std::shared_ptr<NcclApi> nccl,
                                                              int device, size_t bytes,
                                                              Instant deadline);
  NcclMemory(const NcclMemory&) = delete;
  NcclMemory& operator=(const NcclMemory&) = delete;
  ~NcclMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  int device() const { return device_; }
  bool Holds(const void* memory, size_t bytes) const {
    const auto* const at = static_cast<const char*>(memory);
    return bytes > 0 && at >= data_ && at < data_ + size_ &&
           bytes <= static_cast<size_t>(data_ + size_ - at);
  }

 private:
  NcclMemory(std::shared_ptr<NcclApi> nccl, int device, size_t size)
      : nccl_(std::move(nccl)), device_(device), size_(size) {}

  const std::shared_ptr<NcclApi> nccl_;
  const int device_;
  const size_t size_;
  char* data_ = nullptr;
  cuda::ShareableMemory own_;  // if it is not NCCL's
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_MEMORY_H_
