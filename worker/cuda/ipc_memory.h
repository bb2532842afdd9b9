// Device memory of one process, in another one of the same host.
#ifndef COHORT_WORKER_CUDA_IPC_MEMORY_H_
#define COHORT_WORKER_CUDA_IPC_MEMORY_H_

#include <array>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "cuda_runtime_api.h"
#include "worker/cuda/virtual_mapping.h"

namespace cohort::worker::cuda {

// What the other process needs: these fields in a message, and the file descriptor beside it.
//
// Who may free when. A descriptor, and what was imported by it, keep the memory: each side ends its
// use when it likes. What was imported by a legacy handle does not: the owner frees after the last
// who imported it has ended, or what those do is undefined.
struct ExportedMemory {
  enum class Kind {
    kFd,      // of cuMemCreate: ShareableMemory, ncclMemAlloc
    kLegacy,  // of cudaMalloc
  };
  using LegacyHandle = std::array<char, sizeof(cudaIpcMemHandle_t)>;

  Kind kind = Kind::kFd;
  UniqueFd fd;
  LegacyHandle legacy_handle = {};
  // Processes may number devices differently.
  std::string device_uuid;
  // The whole of what is mapped, and where in it the memory is.
  size_t allocation_bytes = 0;
  size_t offset = 0;
  size_t bytes = 0;
};

// Any part of one allocation. Errors: INVALID_ARGUMENT (no device memory, or not all of it is in
// one allocation), FAILED_PRECONDITION (what made it does not let it be shared; which could), and
// those of DescribeDevice.
absl::StatusOr<ExportedMemory> Export(const void* memory, size_t bytes);

// Movable; unmapped with its holder, by when nothing enqueued may use it any more.
class ImportedMemory {
 public:
  // What another process has exported; the descriptor stays the caller's. Its fields are checked
  // against what CUDA says of the allocation. Errors: INVALID_ARGUMENT (they do not fit it, or
  // there is none), FAILED_PRECONDITION (this process does not see the device, or it is the owner
  // itself), RESOURCE_EXHAUSTED, and those of DescribeDevice.
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
  // One of the two.
  VirtualMapping mapping_;
  void* opened_ = nullptr;

  char* data_ = nullptr;
  size_t size_ = 0;
  int device_ = 0;
};

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_IPC_MEMORY_H_
