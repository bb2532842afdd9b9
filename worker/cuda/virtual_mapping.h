// Physical memory of a device at an address of this process.
#ifndef COHORT_WORKER_CUDA_VIRTUAL_MAPPING_H_
#define COHORT_WORKER_CUDA_VIRTUAL_MAPPING_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "cuda.h"

namespace cohort::worker::cuda {

// Movable; unmapped with its holder, by when nothing enqueued may use it any more. The memory
// itself is freed when no process maps it or has a handle or file descriptor of it.
class VirtualMapping {
 public:
  // All `bytes` of `physical`, which it takes, also when it fails. Read and written by `device`.
  // Errors: RESOURCE_EXHAUSTED (no addresses), INVALID_ARGUMENT (no such size), and those of
  // DescribeDevice.
  static absl::StatusOr<VirtualMapping> Map(CUmemGenericAllocationHandle physical, size_t bytes,
                                            int device);
  // What sizes are a multiple of. Errors: as DescribeDevice.
  static absl::StatusOr<size_t> Granularity(int device);
  // Memory that can be exported as a file descriptor, at `device`.
  static CUmemAllocationProp PropertiesFor(int device);

  VirtualMapping() = default;
  VirtualMapping(VirtualMapping&& other) noexcept { *this = std::move(other); }
  VirtualMapping& operator=(VirtualMapping&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(bytes_, other.bytes_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~VirtualMapping();

  char* data() const { return reinterpret_cast<char*>(address_); }
  size_t size() const { return bytes_; }

 private:
  CUdeviceptr address_ = 0;
  size_t bytes_ = 0;
  bool mapped_ = false;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_VIRTUAL_MAPPING_H_
