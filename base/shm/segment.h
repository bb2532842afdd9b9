// Shared memory of several processes.
#ifndef COHORT_BASE_SHM_SEGMENT_H_
#define COHORT_BASE_SHM_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace cohort::shm {

// A mapped memory file without a name. It is freed with the last process that holds it, and does
// not depend on the size of /dev/shm. Its size is sealed, so that no process can shrink it under
// another one. Movable. The object unmaps and closes it at its end.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Makes a segment of `bytes` zeros; pages take memory once they are touched. /proc/PID/maps shows
  // `label`. Errors: RESOURCE_EXHAUSTED (no descriptors or memory), INVALID_ARGUMENT (`bytes` is
  // 0).
  static absl::StatusOr<Segment> Create(const std::string& label, size_t bytes);

  // Takes ownership of `fd`, which another process made with Create. Errors: INVALID_ARGUMENT (not
  // such a file, not sealed, or not of `bytes` bytes).
  static absl::StatusOr<Segment> Map(int fd, size_t bytes);

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // The offset of `memory` in the segment, if all `bytes` from there on are in it.
  std::optional<int64_t> OffsetOf(const void* memory, size_t bytes) const {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    const auto begin = reinterpret_cast<uintptr_t>(data_);
    if (at < begin || at - begin > size_ || bytes > size_ - (at - begin)) return std::nullopt;
    return static_cast<int64_t>(at - begin);
  }
  // The address of `offset`; null: not all `bytes` from there on are in the segment.
  char* At(int64_t offset, size_t bytes) const {
    const auto at = static_cast<size_t>(offset);
    return offset < 0 || at > size_ || bytes > size_ - at ? nullptr : data_ + at;
  }

  // The descriptor, for another process; it stays this object's.
  int fd() const { return fd_; }

 private:
  Segment(int fd, char* data, size_t size) : fd_(fd), data_(data), size_(size) {}
  static absl::StatusOr<Segment> MapWhole(int fd, size_t bytes);

  int fd_ = -1;
  char* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_SEGMENT_H_
