// Memory of a device.
#ifndef COHORT_WORKER_CUDA_DEVICE_MEMORY_H_
#define COHORT_WORKER_CUDA_DEVICE_MEMORY_H_

#include <cstddef>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

// Of cudaMalloc, which other processes can open (ipc_memory.h). Movable; freed with its holder,
// which waits for all that the device has to do: for ever when that hangs, so abort it before. For
// scratch of one operation take StreamMemory.
class DeviceMemory {
 public:
  // Of no bytes: no address. Errors: RESOURCE_EXHAUSTED (naming bytes and device), and those of
  // DescribeDevice.
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

  // For those who want to know. Empty afterwards, also after an error.
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

// Of cudaMallocAsync: there once the stream has come so far, freed when it has done what was
// enqueued before the holder's end. Neither waits. Work of other streams on it must be ordered by
// events; the stream must outlive it. Other processes cannot open it.
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

#endif  // COHORT_WORKER_CUDA_DEVICE_MEMORY_H_
