// The memory that the ranks of one host share: an arrival line for each rank's call, buffers for
// data, and a channel for messages from each rank to each.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_SHARED_HOST_SHARED_MEMORY_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_SHARED_HOST_SHARED_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/status/statusor.h"
#include "base/collective/collective.h"
#include "base/shm/segment.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

inline constexpr size_t kCacheLine = 64;
// Processors fetch cache lines in pairs. Data that one rank writes while another rank reads its
// neighbour is this far apart.
inline constexpr size_t kApart = 2 * kCacheLine;

// One rank writes it, all read it. `sequence` is stored last: a rank that sees the number sees the
// rest.
struct alignas(kApart) ArrivalLine {
  static constexpr size_t kDataBytes = 32;

  std::atomic<uint64_t> sequence;
  CollectiveKey key;
  // The elements of a small operation, or the heap offsets of the tensors of a large one.
  char data[kDataBytes];
};
static_assert(sizeof(ArrivalLine) == kApart);
static_assert(offsetof(ArrivalLine, data) + ArrivalLine::kDataBytes == kCacheLine);

// A piece of a message, or all of it. `number` is stored last; it counts the channel's fragments.
struct alignas(kApart) FragmentLine {
  static constexpr size_t kDataBytes = size_t{kControlBytes};

  std::atomic<uint64_t> number;
  int64_t count;   // elements of the whole message
  int64_t offset;  // of the piece in its buffer; of the message in the heap if `bytes` is 0
  uint32_t bytes;  // of this piece: in `data` if they fit, else in the buffer
  uint32_t tag;
  uint8_t type;
  char data[kDataBytes];
};
static_assert(sizeof(FragmentLine) == kApart);
static_assert(offsetof(FragmentLine, data) + FragmentLine::kDataBytes <= kCacheLine);

// Written by the receiver.
struct alignas(kApart) TakenLine {
  std::atomic<uint64_t> number;  // fragments that were taken
  // The first fragment of the last message that did not match, and what the receiver expected.
  uint64_t mismatched;
  int64_t expected_count;
  uint8_t expected_type;
};

// Messages from one rank to another: a ring of fragments, each with a buffer. Control messages fit
// into their lines and have no buffers.
struct Channel {
  static constexpr uint64_t kFragments = 8;
  // The smallest size of a buffer.
  static constexpr int64_t kSmallBytes = int64_t{8} << 10;

  FragmentLine fragments[kFragments];
  TakenLine taken;

  FragmentLine& line(uint64_t number) { return fragments[number % kFragments]; }
};

// The cause that ended the communicator. The first writer's text stays.
struct Poison {
  enum State : uint32_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };
  static constexpr size_t kMaxText = 500;

  alignas(kCacheLine) std::atomic<uint32_t> state;
  uint32_t size;
  char text[kMaxText];
};

// The word on which one rank sleeps, whether it sleeps, and where it last ran.
struct alignas(kCacheLine) SleepWords {
  std::atomic<uint32_t> event;
  std::atomic<uint32_t> sleeps;
  // The processor's number plus one; 0: not known. The rank stores it while it waits.
  std::atomic<uint32_t> processor;
};

// Movable. Every rank maps the same bytes, in a process of its own or in a shared one.
class HostSharedMemory {
 public:
  // The size of each of a rank's two buffers.
  static constexpr size_t kBufferBytes = size_t{512} << 10;
  static constexpr int kMaxRanks = 256;
  // The number of a rank's arrival lines, one for each sequence number. A rank is at most half of
  // them ahead of another rank.
  static constexpr uint64_t kLines = 128;
  // The room for a rank's data at each of these sequence numbers.
  static constexpr int64_t kEagerSlotBytes = int64_t{16} << 10;

  // Creates a space for `ranks` ranks. Errors: INVALID_ARGUMENT (not 1..kMaxRanks),
  // RESOURCE_EXHAUSTED.
  static absl::StatusOr<HostSharedMemory> Create(int ranks);
  // Maps the space that another process created for the same number of ranks. Takes ownership of
  // `fd`. Errors: INVALID_ARGUMENT (`fd` is not such a space).
  static absl::StatusOr<HostSharedMemory> Attach(int fd, int ranks);

  int ranks() const { return ranks_; }
  // Whether there are more ranks than processors that they may use.
  bool crowded() const;
  // Up to this size an operation takes one barrier and copies its data; above, the direct path
  // takes two barriers and no copy. Where ranks wait for the same processors, a barrier costs as
  // much as copying many KiB.
  int64_t small_bytes() const { return small_bytes_; }
  // The largest eager broadcast whose root copies its data and does not wait.
  int64_t eager_broadcast_bytes() const { return eager_broadcast_bytes_; }
  // The largest message outside the heap whose sender copies it and does not wait.
  int64_t eager_send_bytes() const { return eager_send_bytes_; }
  // The size of a channel's buffers: the more ranks, the smaller. Large messages go fastest through
  // large buffers: memory that is rewritten soon must first be fetched from the reader's cache.
  int64_t fragment_bytes() const { return fragment_bytes_; }
  int fd() const { return segment_.fd(); }

  Poison& poison() const { return *poison_; }
  // How many ranks sleep. A rank that changes something reads this first.
  std::atomic<uint32_t>& sleepers() const { return *sleepers_; }
  // The number of pieces that ranks have taken of the large operation that began at `sequence`.
  std::atomic<int64_t>& taken(uint64_t sequence) const;
  SleepWords& sleep_words(int rank) const { return sleep_words_[rank]; }
  ArrivalLine& line(int rank, uint64_t sequence) const {
    return lines_[static_cast<size_t>(rank) * kLines + sequence % kLines];
  }
  char* eager_slot(int rank, uint64_t sequence) const {
    return eager_slots_ +
           (static_cast<size_t>(rank) * kLines + sequence % kLines) * kEagerSlotBytes;
  }
  char* buffer(int rank, int which) const {
    return buffers_ + (static_cast<size_t>(rank) * 2 + static_cast<size_t>(which)) * kBufferBytes;
  }
  Channel& channel(int from, int to, MessageChannel channel = MessageChannel::kData) const {
    return (channel == MessageChannel::kControl
                ? control_channels_
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
  HostSharedMemory(shm::Segment segment, int ranks);

  shm::Segment segment_;
  int ranks_;
  int64_t small_bytes_;
  int64_t eager_broadcast_bytes_;
  int64_t eager_send_bytes_;
  int64_t fragment_bytes_;
  Poison* poison_;
  std::atomic<uint32_t>* sleepers_;
  SleepWords* sleep_words_;
  ArrivalLine* lines_;
  Channel* channels_;
  Channel* control_channels_;
  char* buffers_;
  char* fragments_;
  char* eager_slots_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_SHARED_HOST_SHARED_MEMORY_H_
