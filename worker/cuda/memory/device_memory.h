// Memory of a device.
#ifndef COHORT_WORKER_CUDA_MEMORY_DEVICE_MEMORY_H_
#define COHORT_WORKER_CUDA_MEMORY_DEVICE_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Memory from cudaMalloc. Movable; the destructor frees it. Freeing waits for all work of the
// device, without limit if that hangs, so abort such work before. For scratch of one operation use
// StreamMemory.
class DeviceMemory {
 public:
  // No bytes have a null address. Errors: RESOURCE_EXHAUSTED (naming bytes and device), and those
  // of DescribeDevice.
  static absl::StatusOr<DeviceMemory> Allocate(int device, size_t bytes);

  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept { *this = std::move(other); }
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~DeviceMemory();

  // Frees the memory and reports errors; the object is empty afterwards, also after an error.
  absl::Status Free();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  int device() const { return device_; }

 private:
  DeviceMemory(char* data, size_t size, int device) : data_(data), size_(size), device_(device) {}

  char* data_ = nullptr;
  size_t size_ = 0;
  int device_ = 0;
};

// Memory from cudaMallocAsync: it exists once the stream has reached the allocation. The destructor
// frees it after the work that the stream has by then. Neither waits. Events order work of other
// streams on it; the stream outlives it.
class StreamMemory {
 public:
  // Errors: RESOURCE_EXHAUSTED (naming bytes), UNIMPLEMENTED (the device has no such memory).
  static absl::StatusOr<StreamMemory> Allocate(cudaStream_t stream, size_t bytes);

  StreamMemory() = default;
  StreamMemory(StreamMemory&& other) noexcept { *this = std::move(other); }
  StreamMemory& operator=(StreamMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~StreamMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  StreamMemory(char* data, size_t size, cudaStream_t stream)
      : data_(data), size_(size), stream_(stream) {}

  char* data_ = nullptr;
  size_t size_ = 0;
  cudaStream_t stream_ = nullptr;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_MEMORY_DEVICE_MEMORY_H_
