// The memory of a queue, as its writer creates it and readers of its host map it.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_MEMORY_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/shm/segment.h"
#include "base/unique_fd.h"
#include "client/parallel/queue/ring/ring_layout.h"

namespace cohort::parallel {

// The ring, in a file without a name and outside of /dev/shm. Its bytes are mapped twice, one
// mapping right after the other, so any range up to the ring's size is contiguous. Only its creator
// writes to it; kernels from 5.1 on enforce that.
class RingMemory {
 public:
  // Creates at least `bytes`, in whole pages. Without a file, which no other process can map, if
  // this process may not call memfd_create. Errors: RESOURCE_EXHAUSTED (no descriptors or
  // memory).
  static absl::StatusOr<std::shared_ptr<RingMemory>> Create(int64_t bytes);
  // Maps a file that another process made with Create. Errors: INVALID_ARGUMENT (not such a file,
  // or another size), RESOURCE_EXHAUSTED (no room among this process's addresses).
  static absl::StatusOr<std::shared_ptr<RingMemory>> Map(UniqueFd fd, int64_t capacity);
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  RingHeader& header() const { return *reinterpret_cast<RingHeader*>(base_); }
  uint64_t capacity() const { return capacity_; }
  // The byte with this number; as many bytes as the ring has from there on.
  char* At(uint64_t place) const { return base_ + page_ + place % capacity_; }
  // The place of a position while it is unread. For a caller that has seen a tail after the
  // position.
  char* AtPosition(uint64_t position) const {
    return At(position + header().shift.load(std::memory_order_relaxed) % capacity_);
  }
  // To be passed to another process; this object keeps it open. -1: the ring has no file.
  int fd() const { return fd_.get(); }

 private:
  RingMemory(UniqueFd fd, uint64_t capacity);
  absl::Status MapTwice(bool writes);
  absl::Status MapTwiceWithoutFile();

  const UniqueFd fd_;
  const uint64_t page_;
  const uint64_t capacity_;
  char* base_ = nullptr;
};

// A reader's page. Lives in a file of its own, so that one reader cannot touch another's.
class PageMemory {
 public:
  static absl::StatusOr<std::shared_ptr<PageMemory>> Create();
  static absl::StatusOr<std::shared_ptr<PageMemory>> Map(UniqueFd fd);

  ReaderPage& page() const { return *reinterpret_cast<ReaderPage*>(segment_.data()); }
  int fd() const { return segment_.fd(); }

 private:
  explicit PageMemory(shm::Segment segment) : segment_(std::move(segment)) {}

  const shm::Segment segment_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_RING_MEMORY_H_
