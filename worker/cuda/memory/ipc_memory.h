// Shares device memory with another process of the same host.
#ifndef COHORT_WORKER_CUDA_MEMORY_IPC_MEMORY_H_
#define COHORT_WORKER_CUDA_MEMORY_IPC_MEMORY_H_

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/memory/virtual_mapping.h"

namespace cohort::worker::cuda {

// The description of memory for another process: these fields in a message, and the file descriptor
// beside it.
//
// A descriptor and memory imported through it keep the memory: each side ends its use at any time.
// A legacy handle does not keep it. The owner frees such memory after the last importer has ended
// its use; otherwise the importers' behavior is undefined.
struct ExportedMemory {
  enum class Kind {
    kFd,      // from cuMemCreate: ShareableMemory, ncclMemAlloc
    kLegacy,  // from cudaMalloc
  };
  using LegacyHandle = std::array<char, sizeof(cudaIpcMemHandle_t)>;

  Kind kind = Kind::kFd;
  UniqueFd fd;
  LegacyHandle legacy_handle = {};
  // Processes may number devices differently.
  std::string device_uuid;
  // The size of the whole mapped allocation, and the part of it that is the memory.
  size_t allocation_bytes = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

// Exports any part of one allocation. Errors: INVALID_ARGUMENT (no device memory, or not all of it
// in one allocation), FAILED_PRECONDITION (its allocator does not let it be shared; names those
// that do), and those of DescribeDevice.
absl::StatusOr<ExportedMemory> Export(const void* memory, size_t bytes);

// Movable; the destructor unmaps it. By then no enqueued work may use it.
class ImportedMemory {
 public:
  // Maps memory that another process has exported; the descriptor stays the caller's. Checks the
  // fields against CUDA's description of the allocation. Errors: INVALID_ARGUMENT (the fields do
  // not fit, or there is no descriptor), FAILED_PRECONDITION (this process does not see the device,
  // or it is the owner itself), RESOURCE_EXHAUSTED, and those of DescribeDevice.
  static absl::StatusOr<ImportedMemory> Import(const ExportedMemory& exported);

  ImportedMemory() = default;
  ImportedMemory(ImportedMemory&& other) noexcept { *this = std::move(other); }
  ImportedMemory& operator=(ImportedMemory&& other) noexcept {
    std::swap(mapping_, other.mapping_);
    std::swap(opened_, other.opened_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(device_, other.device_);
    return *this;
  }
  ~ImportedMemory();

  char* data() const { return data_; }
  size_t size() const { return size_; }
  int device() const { return device_; }

 private:
  // Exactly one of the two is set.
  VirtualMapping mapping_;
  void* opened_ = nullptr;

  char* data_ = nullptr;
  size_t size_ = 0;
  int device_ = 0;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_MEMORY_IPC_MEMORY_H_
