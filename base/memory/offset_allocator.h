// Allocates parts of a range of offsets.
#ifndef COHORT_BASE_MEMORY_OFFSET_ALLOCATOR_H_
#define COHORT_BASE_MEMORY_OFFSET_ALLOCATOR_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace cohort {

// Allocates from the offsets 0 to `bytes`; the owner maps them to memory. The same calls give the
// same offsets. Confined to one thread at a time.
class OffsetAllocator {
 public:
  struct Block {
    size_t at = 0;
    size_t bytes = 0;
  };

  explicit OffsetAllocator(size_t bytes) { AddFree(0, bytes); }

  // Takes from the smallest free part that fits, at a multiple of `alignment`. `bytes` is a
  // multiple of `alignment`, too. nullopt: there is no room.
  std::optional<size_t> Take(size_t bytes, size_t alignment);
  // Gives back the block that was taken at `at`. nullopt: no block is taken there.
  std::optional<Block> Give(size_t at);

  size_t in_use() const { return in_use_; }

 private:
  void AddFree(size_t at, size_t bytes);
  void RemoveFree(size_t at, size_t bytes);

  // Free parts by offset; neighbours are merged.
  std::map<size_t, size_t> free_;
  // The same parts as (bytes, offset).
  std::set<std::pair<size_t, size_t>> free_by_size_;
  std::map<size_t, size_t> used_;
  size_t in_use_ = 0;
};

}  // namespace cohort

#endif  // COHORT_BASE_MEMORY_OFFSET_ALLOCATOR_H_
