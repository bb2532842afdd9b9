// Device memory that other processes can map.
#ifndef COHORT_WORKER_CUDA_MEMORY_SHAREABLE_MEMORY_H_
#define COHORT_WORKER_CUDA_MEMORY_SHAREABLE_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "worker/cuda/memory/virtual_mapping.h"

namespace cohort::worker::cuda {

// Memory from cuMemCreate, which a file descriptor can name, so that NCCL can share it with other
// ranks. Takes whole units, mostly of 2 MiB. Movable; when the destructor runs, no enqueued work
// may use it.
class ShareableMemory {
 public:
  // No bytes have a null address. Errors: RESOURCE_EXHAUSTED (naming bytes and device),
  // UNIMPLEMENTED (the device or the container does not support it), and those of DescribeDevice.
  static absl::StatusOr<ShareableMemory> Allocate(int device, size_t bytes);

  ShareableMemory() = default;
  ShareableMemory(ShareableMemory&& other) noexcept { *this = std::move(other); }
  ShareableMemory& operator=(ShareableMemory&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(size_, other.size_);
    std::swap(device_, other.device_);
    return *this;
  }

  char* data() const { return mapping_.data(); }
  // The size that was asked for; the units may have more.
  size_t size() const { return size_; }
  int device() const { return device_; }

 private:
  ShareableMemory(VirtualMapping mapping, size_t size, int device)
      : mapping_(std::move(mapping)), size_(size), device_(device) {}

  VirtualMapping mapping_;
  size_t size_ = 0;
  int device_ = 0;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_MEMORY_SHAREABLE_MEMORY_H_
