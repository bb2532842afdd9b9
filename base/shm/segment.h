// Memory that several processes map.
#ifndef COHORT_BASE_SHM_SEGMENT_H_
#define COHORT_BASE_SHM_SEGMENT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"

namespace cohort::shm {

// A mapped file that has no name and lives in memory alone: it is gone when the last process that
// holds it is, and does not depend on the size of /dev/shm. Its size is sealed, so that nobody can
// pull it from under another. Movable; unmapped and closed with the object.
class Segment {
 public:
  Segment() = default;
  Segment(Segment&& other) noexcept { *this = std::move(other); }
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Zeros, `bytes` of them; pages take memory once they are touched. `label` is seen in
  // /proc/PID/maps. Errors: RESOURCE_EXHAUSTED (no descriptors or memory), INVALID_ARGUMENT (no
  // bytes).
  static absl::StatusOr<Segment> Create(const std::string& label, size_t bytes);

  // Takes `fd`, which another process made with Create. Errors: INVALID_ARGUMENT when it is not
  // such a file, is not sealed, or has another size than `bytes`.
  static absl::StatusOr<Segment> Map(int fd, size_t bytes);

  char* data() const { return data_; }
  size_t size() const { return size_; }
  // Where in it, if all of the `bytes` from `memory` on lie there.
  std::optional<int64_t> OffsetOf(const void* memory, size_t bytes) const {
    const auto at = reinterpret_cast<uintptr_t>(memory);
    const auto begin = reinterpret_cast<uintptr_t>(data_);
    if (at < begin || at - begin > size_ || bytes > size_ - (at - begin)) return std::nullopt;
    return static_cast<int64_t>(at - begin);
  }
  // The other way round; null if they do not lie there.
  char* At(int64_t offset, size_t bytes) const {
    const auto at = static_cast<size_t>(offset);
    return offset < 0 || at > size_ || bytes > size_ - at ? nullptr : data_ + at;
  }

  // To be passed to another process; stays this object's.
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
