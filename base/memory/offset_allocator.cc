#include "base/memory/offset_allocator.h"

#include <iterator>

namespace cohort {

std::optional<size_t> OffsetAllocator::Take(size_t bytes, size_t alignment) {
  for (auto block = free_by_size_.lower_bound({bytes, 0}); block != free_by_size_.end(); ++block) {
    const auto [size, begin] = *block;
    const size_t at = (begin + alignment - 1) / alignment * alignment;
    if (at + bytes > begin + size) continue;
    RemoveFree(begin, size);
    if (at > begin) AddFree(begin, at - begin);
    if (at + bytes < begin + size) AddFree(at + bytes, begin + size - at - bytes);
    used_[at] = bytes;
    in_use_ += bytes;
    return at;
  }
  return std::nullopt;
}

std::optional<OffsetAllocator::Block> OffsetAllocator::Give(size_t at) {
  const auto used = used_.find(at);
  if (used == used_.end()) return std::nullopt;
  const Block given = {at, used->second};
  used_.erase(used);
  in_use_ -= given.bytes;
  size_t begin = at;
  size_t size = given.bytes;
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto [previous_at, previous_size] = *std::prev(next);
    if (previous_at + previous_size == begin) {
      RemoveFree(previous_at, previous_size);
      begin = previous_at;
      size += previous_size;
    }
  }
  if (const auto after = free_.find(begin + size); after != free_.end()) {
    const auto [after_at, after_size] = *after;
    RemoveFree(after_at, after_size);
    size += after_size;
  }
  AddFree(begin, size);
  return given;
}

void OffsetAllocator::AddFree(size_t at, size_t bytes) {
  free_[at] = bytes;
  free_by_size_.insert({bytes, at});
}

void OffsetAllocator::RemoveFree(size_t at, size_t bytes) {
  free_.erase(at);
  free_by_size_.erase({bytes, at});
}

}  // namespace cohort
