// The memory of a queue, as the writer makes it and readers of its host map it.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_MEMORY_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_MEMORY_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/shm/segment.h"
#include "base/unique_fd.h"
#include "client/parallel/queue/ring_layout.h"

namespace cohort::parallel {

// The ring, in a file that has no name and no place in /dev/shm. Its bytes are mapped twice, one
// behind the other, so that whatever is no longer than the ring lies in one piece. Whoever maps it
// besides its maker can only read.
class RingMemory {
 public:
  // At least `bytes`, in whole pages. Errors: RESOURCE_EXHAUSTED (no descriptors or memory).
  static absl::StatusOr<std::shared_ptr<RingMemory>> Create(int64_t bytes);
  // Of a file that another process made with Create. Errors: INVALID_ARGUMENT (it is none, or has
  // another size), RESOURCE_EXHAUSTED (no room among this process's addresses).
  static absl::StatusOr<std::shared_ptr<RingMemory>> Map(UniqueFd fd, int64_t capacity);
  ~RingMemory();
  RingMemory(const RingMemory&) = delete;
  RingMemory& operator=(const RingMemory&) = delete;

  RingHeader& header() const { return *reinterpret_cast<RingHeader*>(base_); }
  uint64_t capacity() const { return capacity_; }
  // The byte with this number; as many bytes as the ring has from there on.
  char* At(uint64_t place) const { return base_ + page_ + place % capacity_; }
  // Where the position lies, as long as it is unread. For who has seen a tail behind it.
  char* AtPosition(uint64_t position) const {
    return At(position + header().shift.load(std::memory_order_relaxed) % capacity_);
  }
  // To be passed on; stays this object's.
  int fd() const { return fd_.get(); }

 private:
  RingMemory(UniqueFd fd, uint64_t capacity);
  absl::Status MapTwice(bool writes);

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

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_MEMORY_H_
