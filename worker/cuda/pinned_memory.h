// Host memory that devices read and write directly.
#ifndef COHORT_WORKER_CUDA_PINNED_MEMORY_H_
#define COHORT_WORKER_CUDA_PINNED_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::worker::cuda {

// Of cudaHostAlloc, for all devices, at the same address for host and devices. Movable; freed with
// its holder, which waits for all that the device has to do, as DeviceMemory does.
class PinnedMemory {
 public:
  // Of no bytes: no address. Errors: RESOURCE_EXHAUSTED (naming bytes), and those of DeviceCount.
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

// Memory of someone else, such as a segment that processes share, pinned as long as this lasts: so
// a flag in it can be seen by devices of every process that registers it. Movable; the memory must
// outlive it, and its end waits as PinnedMemory's does.
class RegisteredMemory {
 public:
  // Whole pages are pinned. Errors: INVALID_ARGUMENT (none, or part of it is registered already),
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

  // What was registered, for the host and for devices, which may know it under another address.
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

#endif  // COHORT_WORKER_CUDA_PINNED_MEMORY_H_
