// Host memory that devices read and write directly.
#ifndef COHORT_WORKER_CUDA_MEMORY_PINNED_MEMORY_H_
#define COHORT_WORKER_CUDA_MEMORY_PINNED_MEMORY_H_

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

// Pins memory of another owner, such as a segment that processes share, for its own lifetime. The
// devices of every process that registers the segment can then see a flag in it. Movable; the
// memory outlives it, and the destructor waits like that of PinnedMemory.
class RegisteredMemory {
 public:
  // Pins whole pages. Errors: INVALID_ARGUMENT (no memory, or part of it is registered already),
  // RESOURCE_EXHAUSTED (no more can be pinned), and those of DeviceCount.
  static absl::StatusOr<RegisteredMemory> Register(void* memory, size_t bytes);

  RegisteredMemory() = default;
  RegisteredMemory(RegisteredMemory&& other) noexcept { *this = std::move(other); }
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(device_data_, other.device_data_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~RegisteredMemory();

  // The registered memory, for the host and for devices; a device may have another address for it.
  char* data() const { return data_; }
  char* device_data() const { return device_data_; }
  size_t size() const { return size_; }

 private:
  RegisteredMemory(char* data, size_t size) : data_(data), size_(size) {}

  char* data_ = nullptr;
  char* device_data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_MEMORY_PINNED_MEMORY_H_
