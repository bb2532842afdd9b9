#include "worker/group/gpu/device_heap.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// The alignment of cudaMalloc.
constexpr size_t kAlignment = 512;

}  // namespace

absl::StatusOr<std::shared_ptr<DeviceHeap>> DeviceHeap::Create(std::shared_ptr<NcclApi> nccl,
                                                               int device, size_t bytes,
                                                               Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<NcclMemory> memory,
                          NcclMemory::Allocate(std::move(nccl), device, bytes, deadline));
  return std::shared_ptr<DeviceHeap>(new DeviceHeap(std::move(memory)));
}

DeviceHeap::DeviceHeap(std::shared_ptr<NcclMemory> memory)
    : memory_(std::move(memory)), blocks_(memory_->size()) {}

std::optional<Tensor> DeviceHeap::Allocate(DataType type, const Shape& shape) {
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  if (bytes > memory_->size()) return std::nullopt;
  const size_t needed = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  std::optional<size_t> at;
  {
    MutexLock lock(&mutex_);
    at = blocks_.Take(needed, kAlignment);
  }
  if (!at.has_value()) return std::nullopt;
  char* const data = memory_->data() + *at;
  std::shared_ptr<const void> owner(data, [heap = shared_from_this(), at = *at](const void*) {
    MutexLock lock(&heap->mutex_);
    heap->blocks_.Give(at);
  });
  return Tensor(data, type, shape, std::move(owner), Device::Cuda(memory_->device()));
}

size_t DeviceHeap::bytes_in_use() const {
  MutexLock lock(&mutex_);
  return blocks_.in_use();
}

}  // namespace cohort::worker
