// The memory in which the ranks of one host meet: a line for each to say what it calls, buffers to
// put data in, and a channel from each to each for messages.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_HOST_SPACE_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_HOST_SPACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "base/collective.h"
#include "base/shm/segment.h"

namespace cohort::worker {

inline constexpr size_t kCacheLine = 64;
// Processors fetch lines in pairs: what one writes while another reads its neighbour is kept apart
// by so much.
inline constexpr size_t kApart = 2 * kCacheLine;

// Written by one rank, read by all. `turn` is stored last: who sees it sees the rest.
struct alignas(kApart) ArrivalLine {
  static constexpr size_t kDataBytes = 32;

  std::atomic<uint64_t> turn;
  CollectiveKey key;
  // Of small operations the elements themselves; of large ones where they are.
  char data[kDataBytes];
};
static_assert(sizeof(ArrivalLine) == kApart);
static_assert(offsetof(ArrivalLine, data) + ArrivalLine::kDataBytes == kCacheLine);

// A piece of a message, or all of it. `number` is stored last; it counts the channel's fragments.
struct alignas(kApart) FragmentLine {
  static constexpr size_t kDataBytes = 24;

  std::atomic<uint64_t> number;
  int64_t count;   // of the elements of the whole message
  int64_t place;   // of the piece in its buffer; if it has no bytes, of the message in the heap
  uint32_t bytes;  // of this piece: in `data` if they fit, else in the buffer
  uint32_t tag;
  uint8_t type;
  char data[kDataBytes];
};
static_assert(sizeof(FragmentLine) == kApart);
static_assert(offsetof(FragmentLine, data) + FragmentLine::kDataBytes <= kCacheLine);

// What goes between two ranks, each by a channel of its own: see Communicator.
enum class Mail { kMessages, kNotes };

// Written by the receiver.
struct alignas(kApart) TakenLine {
  std::atomic<uint64_t> number;  // of fragments
  // The first fragment of the last message that was refused, and what had been expected.
  uint64_t refused;
  int64_t expected_count;
  uint8_t expected_type;
};

// Messages from one rank to another: a ring of fragments, each with a buffer; or notes, which fit
// into their lines and have no buffers.
struct Channel {
  static constexpr uint64_t kFragments = 8;
  // Each buffer holds so much at least.
  static constexpr int64_t kSmallBytes = int64_t{8} << 10;

  FragmentLine fragments[kFragments];
  TakenLine taken;

  FragmentLine& line(uint64_t number) { return fragments[number % kFragments]; }
};

// Why nothing works any more. The first writer's text stays.
struct Poison {
  enum State : uint32_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };
  static constexpr size_t kMaxText = 500;

  alignas(kCacheLine) std::atomic<uint32_t> state;
  uint32_t size;
  char text[kMaxText];
};

// What one rank sleeps on, whether it does, and where it last ran.
struct alignas(kCacheLine) SleepWords {
  std::atomic<uint32_t> event;
  std::atomic<uint32_t> sleeps;
  // The processor's number plus one; 0: not known. The rank stores it while it waits.
  std::atomic<uint32_t> processor;
};

// Movable. The same bytes are mapped by every rank, in its own process or not.
class HostSpace {
 public:
  // Of each of a rank's two buffers.
  static constexpr size_t kBufferBytes = size_t{512} << 10;
  static constexpr int kMaxRanks = 256;
  // Of each rank, for as many turns: nobody is further ahead of another than half of them.
  static constexpr uint64_t kLines = 128;
  // The room for a rank's data of each of these turns.
  static constexpr int64_t kAheadRoom = int64_t{16} << 10;

  // For `ranks` of them. Errors: INVALID_ARGUMENT (not 1..kMaxRanks), RESOURCE_EXHAUSTED.
  static absl::StatusOr<HostSpace> Create(int ranks);
  // Takes `fd`, of a space that another process made for as many ranks. Errors: INVALID_ARGUMENT
  // when it is none.
  static absl::StatusOr<HostSpace> Attach(int fd, int ranks);

  int ranks() const { return ranks_; }
  // Whether the ranks are more than the processors that they may use.
  bool crowded() const;
  // Up to here an operation takes one meeting, with a copy; above, two, without. Where ranks wait
  // for the same processors, a meeting costs as much as copying many KiB.
  int64_t small_bytes() const { return small_bytes_; }
  // Up to here a broadcast's root copies what it has and goes on.
  int64_t ahead_bytes() const { return ahead_bytes_; }
  // Up to here a message's sender copies what it has and goes on.
  int64_t sent_ahead_bytes() const { return sent_ahead_bytes_; }
  // Of a channel's buffers. Through large ones large messages go fastest: what is written again
  // soon has to be fetched from the cache of the one who read it. The more ranks, the smaller.
  int64_t fragment_bytes() const { return fragment_bytes_; }
  int fd() const { return segment_.fd(); }

  Poison& poison() const;
  // How many ranks sleep: who changes something looks here first.
  std::atomic<uint32_t>& sleepers() const;
  // Of one large operation, begun at a turn: the pieces of it that somebody has taken.
  std::atomic<int64_t>& taken(uint64_t turn) const;
  SleepWords& sleep_words(int rank) const { return sleep_words_[rank]; }
  ArrivalLine& line(int rank, uint64_t turn) const {
    return lines_[static_cast<size_t>(rank) * kLines + turn % kLines];
  }
  char* ahead(int rank, uint64_t turn) const {
    return ahead_ + (static_cast<size_t>(rank) * kLines + turn % kLines) * kAheadRoom;
  }
  char* buffer(int rank, int which) const {
    return buffers_ + (static_cast<size_t>(rank) * 2 + static_cast<size_t>(which)) * kBufferBytes;
  }
  Channel& channel(int from, int to, Mail mail = Mail::kMessages) const {
    return (mail == Mail::kNotes
                ? note_channels_
                : channels_)[static_cast<size_t>(from) * static_cast<size_t>(ranks_) +
                             static_cast<size_t>(to)];
  }
  char* fragment(int from, int to, uint64_t number) const {
    const size_t channel =
        static_cast<size_t>(from) * static_cast<size_t>(ranks_) + static_cast<size_t>(to);
    return fragments_ + (channel * Channel::kFragments + number % Channel::kFragments) *
                            static_cast<size_t>(fragment_bytes_);
  }

 private:
  HostSpace(shm::Segment segment, int ranks);

  shm::Segment segment_;
  int ranks_;
  int64_t small_bytes_;
  int64_t ahead_bytes_;
  int64_t sent_ahead_bytes_;
  int64_t fragment_bytes_;
  SleepWords* sleep_words_;
  ArrivalLine* lines_;
  Channel* channels_;
  Channel* note_channels_;
  char* buffers_;
  char* fragments_;
  char* ahead_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_SPACE_H_
