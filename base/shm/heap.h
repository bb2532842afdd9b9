// A heap in one shared segment, which other processes map once.
#ifndef COHORT_BASE_SHM_HEAP_H_
#define COHORT_BASE_SHM_HEAP_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/memory/offset_allocator.h"
#include "base/shm/segment.h"
#include "base/threads/mutex.h"

namespace cohort::shm {

// The segment is far larger than the memory in use: pages take memory once they are touched. A
// process that has mapped it sees all later allocations, too. Only the process that made the heap
// knows its blocks. Thread-safe.
class Heap {
 public:
  // Up to so many freed bytes keep their pages.
  static constexpr size_t kKept = size_t{256} << 20;
  // Is asked, under the heap's lock, before the heap has `more` bytes in pages, and told when it
  // has fewer. With an error the allocation fails.
  using Charge = std::function<absl::Status(int64_t more)>;

  // The size of this machine's memory.
  static size_t DefaultCapacity();

  // Errors: as Segment::Create.
  static absl::StatusOr<std::unique_ptr<Heap>> Create(const std::string& label, size_t capacity,
                                                      size_t most_kept = kKept,
                                                      Charge charge = nullptr);

  // The address is a multiple of 64 bytes, and of a page if `bytes` is 64 KiB or more. The memory
  // has undefined contents. Zero bytes get an address of their own. Errors: RESOURCE_EXHAUSTED (the
  // capacity has no room left); FAILED_PRECONDITION (in a forked child); those of the charge.
  absl::StatusOr<void*> Allocate(size_t bytes);

  // Frees a block of Allocate. Does nothing in a forked child: its parent has the same pages, and
  // may use the block. Up to `most_kept` freed bytes keep their pages, so that later allocations
  // need not touch new ones; the machine gets the pages of further bytes back.
  void Free(void* memory);

  const Segment& segment() const { return segment_; }
  size_t bytes_in_use() const;

 private:
  Heap(Segment segment, size_t most_kept, Charge charge);

  const Segment segment_;
  const size_t most_kept_;
  const Charge charge_;
  const pid_t creator_;
  mutable Mutex mutex_;
  OffsetAllocator blocks_ ABSL_GUARDED_BY(mutex_);
  // About how many freed bytes still have their pages.
  size_t kept_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_HEAP_H_
