// Maps physical memory of a device at an address of this process.
#ifndef COHORT_WORKER_CUDA_MEMORY_VIRTUAL_MAPPING_H_
#define COHORT_WORKER_CUDA_MEMORY_VIRTUAL_MAPPING_H_

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "cuda.h"

namespace cohort::worker::cuda {

// Movable; the destructor unmaps it. By then no enqueued work may use it. The memory itself is
// freed when no process maps it or has a handle or file descriptor of it.
class VirtualMapping {
 public:
  // Maps all `bytes` of `physical`, for reads and writes by `device`. Takes `physical` over, also
  // after an error. Errors: RESOURCE_EXHAUSTED (no addresses), INVALID_ARGUMENT (no such size), and
  // those of DescribeDevice.
  static absl::StatusOr<VirtualMapping> Map(CUmemGenericAllocationHandle physical, size_t bytes,
                                            int device);
  // Returns the unit of which sizes are a multiple. Errors: those of DescribeDevice.
  static absl::StatusOr<size_t> Granularity(int device);
  // The properties of memory at `device` that can be exported as a file descriptor.
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

#endif  // COHORT_WORKER_CUDA_MEMORY_VIRTUAL_MAPPING_H_
