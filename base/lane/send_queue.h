// Bytes on their way into a socket that may not take them all at once.
#ifndef COHORT_BASE_LANE_SEND_QUEUE_H_
#define COHORT_BASE_LANE_SEND_QUEUE_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace cohort::lane {

// Confined to one thread at a time.
class SendQueue {
 public:
  enum class Flushed { kAll, kPartly, kBroken };

  // Copied.
  void Append(absl::string_view bytes);
  // Shared when that is cheaper; `keep` keeps `bytes` alive and unchanged.
  void AppendShared(const std::shared_ptr<const void>& keep, absl::string_view bytes);

  // Writes as much as `fd`, which does not block, takes now.
  Flushed Flush(int fd);
  size_t size() const { return size_; }

 private:
  struct Chunk {
    std::string own;
    std::shared_ptr<const void> keep;
    absl::string_view shared;  // when `keep` is set

    absl::string_view bytes() const { return keep == nullptr ? absl::string_view(own) : shared; }
  };

  void Drop(size_t bytes);

  std::deque<Chunk> chunks_;
  size_t front_ = 0;  // bytes of the first chunk that are gone
  size_t size_ = 0;
};

}  // namespace cohort::lane

#endif  // COHORT_BASE_LANE_SEND_QUEUE_H_
