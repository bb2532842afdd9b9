// Tensors of a GPU in memory that NCCL reads and writes without copies.
#ifndef COHORT_WORKER_GROUP_GPU_DEVICE_HEAP_H_
#define COHORT_WORKER_GROUP_GPU_DEVICE_HEAP_H_

#include <cstddef>
#include <memory>
#include <optional>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/memory/offset_allocator.h"
#include "base/tensor/tensor.h"
#include "base/threads/mutex.h"
#include "worker/communicator/nccl/clique/nccl_memory.h"

namespace cohort::worker {

// One block that groups register when they form, and an allocator in it. Lives as long as a tensor
// in it. Thread-safe.
class DeviceHeap : public std::enable_shared_from_this<DeviceHeap> {
 public:
  // Errors: those of NcclMemory::Allocate.
  static absl::StatusOr<std::shared_ptr<DeviceHeap>> Create(std::shared_ptr<NcclApi> nccl,
                                                            int device, size_t bytes,
                                                            Instant deadline);

  // Returns a contiguous tensor of undefined value. Ranks that make the same allocations in the
  // same order get the same offsets. nullopt: no room. Unlike cudaFree, the end of a tensor waits
  // for nothing and frees its room at once: no enqueued work may still use it.
  std::optional<Tensor> Allocate(DataType type, const Shape& shape);

  const std::shared_ptr<NcclMemory>& memory() const { return memory_; }
  size_t bytes_in_use() const;

 private:
  explicit DeviceHeap(std::shared_ptr<NcclMemory> memory);

  const std::shared_ptr<NcclMemory> memory_;
  mutable Mutex mutex_;
  OffsetAllocator blocks_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GPU_DEVICE_HEAP_H_
