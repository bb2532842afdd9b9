#include "worker/communicator/host/shared/host_shared_memory.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// "COHORT" and the version of the layout.
constexpr uint64_t kMagic = 0x434F484F52540006;
constexpr size_t kPage = 4096;

struct Header {
  std::atomic<uint64_t> magic;
  // As the creator of the space found it: the same for all ranks.
  uint32_t crowded;
  alignas(kCacheLine) std::atomic<uint32_t> sleepers;
  struct alignas(kCacheLine) Taken {
    std::atomic<int64_t> pieces;
  };
  Taken taken[2];
  Poison poison;
};
static_assert(sizeof(Header) <= kPage);

int64_t FragmentBytes(int ranks) {
  constexpr int64_t kMost = int64_t{128} << 10;
  constexpr int64_t kOfAll = int64_t{512} << 10;
  const int64_t bytes = std::clamp(kOfAll / ranks, Channel::kSmallBytes, kMost);
  return bytes / static_cast<int64_t>(kPage) * static_cast<int64_t>(kPage);
}

// In this order, each from a page of its own: the header, sleep words, arrival lines, channels of
// data and of control messages, the ranks' buffers, the channels' buffers, and the eager slots.
// Pages that no rank touches take no memory.
struct Layout {
  explicit Layout(int count) {
    const auto ranks = static_cast<size_t>(count);
    const auto next = [this](size_t size) {
      const size_t begin = bytes;
      bytes += (size + kPage - 1) / kPage * kPage;
      return begin;
    };
    next(sizeof(Header));
    sleep_words = next(ranks * sizeof(SleepWords));
    lines = next(ranks * HostSharedMemory::kLines * sizeof(ArrivalLine));
    channels = next(ranks * ranks * sizeof(Channel));
    control_channels = next(ranks * ranks * sizeof(Channel));
    buffers = next(ranks * 2 * HostSharedMemory::kBufferBytes);
    fragments =
        next(ranks * ranks * Channel::kFragments * static_cast<size_t>(FragmentBytes(count)));
    eager_slots = next(ranks * HostSharedMemory::kLines *
                       static_cast<size_t>(HostSharedMemory::kEagerSlotBytes));
  }

  size_t sleep_words;
  size_t lines;
  size_t channels;
  size_t control_channels;
  size_t buffers;
  size_t fragments;
  size_t eager_slots;
  size_t bytes = 0;
};

int Processors() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return 1;
  return CPU_COUNT(&allowed);
}

absl::Status CheckRanks(int ranks) {
  if (ranks >= 1 && ranks <= HostSharedMemory::kMaxRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(ranks, " ranks on one host; from 1 to ",
                                                 HostSharedMemory::kMaxRanks, " can be"));
}

Header& HeaderOf(const shm::Segment& segment) { return *reinterpret_cast<Header*>(segment.data()); }

}  // namespace

HostSharedMemory::HostSharedMemory(shm::Segment segment, int ranks)
    : segment_(std::move(segment)), ranks_(ranks) {
  constexpr int64_t kSmall = 512;
  constexpr int64_t kSmallWhereCrowded = int64_t{16} << 10;
  small_bytes_ = crowded() ? kSmallWhereCrowded : kSmall;
  constexpr int64_t kEagerBytes = int64_t{2} << 10;
  eager_broadcast_bytes_ = crowded() ? kEagerSlotBytes : kEagerBytes;
  // The channel holds at least this much: its buffers have at least kSmallBytes.
  constexpr int64_t kHeld = Channel::kSmallBytes * static_cast<int64_t>(Channel::kFragments);
  eager_send_bytes_ = crowded() ? kHeld : Channel::kSmallBytes;
  fragment_bytes_ = FragmentBytes(ranks);
  poison_ = &HeaderOf(segment_).poison;
  sleepers_ = &HeaderOf(segment_).sleepers;
  const Layout layout(ranks);
  char* const begin = segment_.data();
  sleep_words_ = reinterpret_cast<SleepWords*>(begin + layout.sleep_words);
  lines_ = reinterpret_cast<ArrivalLine*>(begin + layout.lines);
  channels_ = reinterpret_cast<Channel*>(begin + layout.channels);
  control_channels_ = reinterpret_cast<Channel*>(begin + layout.control_channels);
  buffers_ = begin + layout.buffers;
  fragments_ = begin + layout.fragments;
  eager_slots_ = begin + layout.eager_slots;
}

absl::StatusOr<HostSharedMemory> HostSharedMemory::Create(int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment,
                          shm::Segment::Create("cohort-space", Layout(ranks).bytes));
  HeaderOf(segment).crowded = ranks > Processors() ? 1 : 0;
  HeaderOf(segment).magic.store(kMagic, std::memory_order_release);
  return HostSharedMemory(std::move(segment), ranks);
}

absl::StatusOr<HostSharedMemory> HostSharedMemory::Attach(int fd, int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Map(fd, Layout(ranks).bytes));
  if (HeaderOf(segment).magic.load(std::memory_order_acquire) != kMagic) {
    return absl::InvalidArgumentError("the shared memory is no space for ranks of this version");
  }
  return HostSharedMemory(std::move(segment), ranks);
}

bool HostSharedMemory::crowded() const { return HeaderOf(segment_).crowded != 0; }

std::atomic<int64_t>& HostSharedMemory::taken(uint64_t sequence) const {
  return HeaderOf(segment_).taken[sequence % 2].pieces;
}

}  // namespace cohort::worker
