// The memory in which the ranks of one host meet: a line for each to say what it calls, and two
// buffers for each to put data in.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_HOST_SPACE_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_HOST_SPACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/shm/segment.h"

namespace cohort::worker {

inline constexpr size_t kCacheLine = 64;

// Written by one rank, read by all. `turn` is stored last: who sees it sees the rest.
struct alignas(kCacheLine) ArrivalLine {
  std::atomic<uint64_t> turn;
  uint64_t what;
  int64_t count;
};
static_assert(sizeof(ArrivalLine) == kCacheLine);

// Why nothing works any more. The first writer's text stays.
struct Poison {
  enum State : uint32_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };
  static constexpr size_t kMaxText = 240;

  alignas(kCacheLine) std::atomic<uint32_t> state;
  uint32_t size;
  char text[kMaxText];
};

// Ranks that sleep count themselves; who arrives looks, and wakes them by changing `event`.
struct SleepWords {
  alignas(kCacheLine) std::atomic<uint32_t> sleepers;
  alignas(kCacheLine) std::atomic<uint32_t> event;
};

// Movable. The same bytes are mapped by every rank, in its own process or not.
class HostSpace {
 public:
  // Of each of a rank's two buffers.
  static constexpr size_t kBufferBytes = size_t{512} << 10;
  static constexpr int kMaxRanks = 1024;

  // For `ranks` of them. Errors: INVALID_ARGUMENT (not 1..kMaxRanks), RESOURCE_EXHAUSTED.
  static absl::StatusOr<HostSpace> Create(int ranks);
  // Takes `fd`, of a space that another process made for as many ranks. Errors: INVALID_ARGUMENT
  // when it is none.
  static absl::StatusOr<HostSpace> Attach(int fd, int ranks);

  int ranks() const { return ranks_; }
  int fd() const { return segment_.fd(); }

  Poison& poison() const;
  SleepWords& sleep_words() const;
  // Of the rank's turns, even or odd.
  ArrivalLine& line(int rank, uint64_t turn) const;
  char* buffer(int rank, int which) const;

 private:
  HostSpace(shm::Segment segment, int ranks) : segment_(std::move(segment)), ranks_(ranks) {}

  shm::Segment segment_;
  int ranks_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_SPACE_H_
