#include "base/shm/heap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "absl/base/internal/raw_logging.h"
#include "absl/memory/memory.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::shm {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kPage = 4096;
constexpr size_t kLarge = size_t{64} << 10;

size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

}  // namespace

size_t Heap::DefaultCapacity() {
  const auto pages = static_cast<size_t>(std::max(sysconf(_SC_PHYS_PAGES), 1L << 18));
  return RoundUp(pages * kPage, size_t{1} << 30);
}

absl::StatusOr<std::unique_ptr<Heap>> Heap::Create(const std::string& label, size_t capacity) {
  COHORT_ASSIGN_OR_RETURN(Segment segment, Segment::Create(label, RoundUp(capacity, kPage)));
  return absl::WrapUnique(new Heap(std::move(segment)));
}

Heap::Heap(Segment segment) : segment_(std::move(segment)) {
  // A hint for machines that allow it.
  madvise(segment_.data(), segment_.size(), MADV_HUGEPAGE);
  MutexLock lock(&mutex_);
  AddFree(0, segment_.size());
}

absl::StatusOr<void*> Heap::Allocate(size_t bytes) {
  if (bytes > segment_.size()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(bytes, " bytes of shared memory; the whole has ", segment_.size()));
  }
  const size_t alignment = bytes >= kLarge ? kPage : kLine;
  const size_t needed = RoundUp(std::max<size_t>(bytes, 1), alignment);
  MutexLock lock(&mutex_);
  for (auto block = free_by_size_.lower_bound({needed, 0}); block != free_by_size_.end(); ++block) {
    const auto [size, begin] = *block;
    const size_t at = RoundUp(begin, alignment);
    if (at + needed > begin + size) continue;
    RemoveFree(begin, size);
    if (at > begin) AddFree(begin, at - begin);
    if (at + needed < begin + size) AddFree(at + needed, begin + size - at - needed);
    used_[at] = needed;
    in_use_ += needed;
    kept_ -= std::min(kept_, needed);
    return segment_.data() + at;
  }
  return absl::ResourceExhaustedError(absl::StrCat(bytes, " bytes of shared memory; of ",
                                                   segment_.size(), " are ", in_use_, " in use"));
}

void Heap::Free(void* memory) {
  const auto at = static_cast<size_t>(static_cast<char*>(memory) - segment_.data());
  MutexLock lock(&mutex_);
  const auto used = used_.find(at);
  ABSL_RAW_CHECK(used != used_.end(), "memory freed that is not allocated, or twice");
  size_t begin = at;
  size_t size = used->second;
  used_.erase(used);
  in_use_ -= size;
  kept_ += size;
  if (kept_ > kKept) {
    const size_t first = RoundUp(begin, kPage);
    const size_t last = (begin + size) / kPage * kPage;
    if (first < last &&
        fallocate(segment_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                  static_cast<off_t>(first), static_cast<off_t>(last - first)) == 0) {
      kept_ -= last - first;
    }
  }
  const auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto previous = std::prev(next);
    const auto [previous_at, previous_size] = *previous;
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
}

size_t Heap::bytes_in_use() const {
  MutexLock lock(&mutex_);
  return in_use_;
}

void Heap::AddFree(size_t at, size_t bytes) {
  free_[at] = bytes;
  free_by_size_.insert({bytes, at});
}

void Heap::RemoveFree(size_t at, size_t bytes) {
  free_.erase(at);
  free_by_size_.erase({bytes, at});
}

}  // namespace cohort::shm
