// Host memory that devices read and write directly, for tests.
#ifndef COHORT_WORKER_CUDA_TESTING_PINNED_MEMORY_H_
#define COHORT_WORKER_CUDA_TESTING_PINNED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::worker::cuda {

// Memory from cudaHostAlloc, for all devices, at the same address for host and devices. Movable;
// the destructor frees it and waits for all work of the device, like that of DeviceMemory.
class PinnedMemory {
 public:
  // No bytes have a null address. Errors: RESOURCE_EXHAUSTED (naming bytes), and those of
  // DeviceCount.
  static absl::StatusOr<PinnedMemory> Allocate(size_t bytes);

  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept { *this = std::move(other); }
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~PinnedMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  PinnedMemory(char* data, size_t size) : data_(data), size_(size) {}

  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_TESTING_PINNED_MEMORY_H_
