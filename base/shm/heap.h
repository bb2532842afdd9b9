// Memory to allocate from, all of which other processes can map at once.
#ifndef COHORT_BASE_SHM_HEAP_H_
#define COHORT_BASE_SHM_HEAP_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/mutex.h"
#include "base/offset_allocator.h"
#include "base/shm/segment.h"

namespace cohort::shm {

// One segment, far larger than what is used of it: pages take memory once they are touched. Whoever
// has mapped it sees all that is ever allocated from it. What is allocated where is known to the
// process that made it alone. Thread-safe.
class Heap {
 public:
  // As much as this machine has memory.
  static size_t DefaultCapacity();

  // Errors: as Segment::Create.
  static absl::StatusOr<std::unique_ptr<Heap>> Create(const std::string& label, size_t capacity);

  // At a multiple of 64 bytes, from 64 KiB on at one of a page. What is in it is what was left
  // there. Of no bytes: an address that is nobody else's. Errors: RESOURCE_EXHAUSTED (no room left
  // in the capacity).
  absl::StatusOr<void*> Allocate(size_t bytes);

  // Takes what Allocate gave, once. Up to `kKept` freed bytes keep their pages, so that the next
  // who allocates them need not touch new ones; of more, the machine gets the pages back.
  static constexpr size_t kKept = size_t{256} << 20;
  void Free(void* memory);

  const Segment& segment() const { return segment_; }
  size_t bytes_in_use() const;

 private:
  explicit Heap(Segment segment);

  const Segment segment_;
  mutable Mutex mutex_;
  OffsetAllocator blocks_ ABSL_GUARDED_BY(mutex_);
  // About how many freed bytes have their pages still.
  size_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_HEAP_H_
