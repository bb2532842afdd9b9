// Who has which part of a range.
#ifndef COHORT_BASE_OFFSET_ALLOCATOR_H_
#define COHORT_BASE_OFFSET_ALLOCATOR_H_

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace cohort {

// Of offsets from 0 on; what lies there, and whether it can be touched, is the holder's affair. The
// same calls give the same offsets. One thread at a time.
class OffsetAllocator {
 public:
  struct Block {
    size_t at = 0;
    size_t bytes = 0;
  };

  explicit OffsetAllocator(size_t bytes) { AddFree(0, bytes); }

  // The smallest that fits, at a multiple of `alignment`, which `bytes` is one of, too. nullopt: no
  // room.
  std::optional<size_t> Take(size_t bytes, size_t alignment);
  // Gives back what was taken at `at`, once. nullopt: nothing was.
  std::optional<Block> Give(size_t at);

  size_t in_use() const { return in_use_; }

 private:
  void AddFree(size_t at, size_t bytes);
  void RemoveFree(size_t at, size_t bytes);

  // By offset; neighbours are one.
  std::map<size_t, size_t> free_;
  // The same, as bytes and offset.
  std::set<std::pair<size_t, size_t>> free_by_size_;
  std::map<size_t, size_t> used_;
  size_t in_use_ = 0;
};

}  // namespace cohort

#endif  // COHORT_BASE_OFFSET_ALLOCATOR_H_
