#include "worker/communicator/host/host_space.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// "COHORT" and the version of what follows.
constexpr uint64_t kMagic = 0x434F484F52540001;
constexpr size_t kPage = 4096;

// At the start; lines and buffers follow, each from a page of their own.
struct Header {
  std::atomic<uint64_t> magic;
  SleepWords sleep_words;
  Poison poison;
};
static_assert(sizeof(Header) <= kPage);

size_t LinesBytes(int ranks) {
  const size_t bytes = static_cast<size_t>(ranks) * 2 * sizeof(ArrivalLine);
  return (bytes + kPage - 1) / kPage * kPage;
}

size_t SpaceBytes(int ranks) {
  return kPage + LinesBytes(ranks) + static_cast<size_t>(ranks) * 2 * HostSpace::kBufferBytes;
}

absl::Status CheckRanks(int ranks) {
  if (ranks >= 1 && ranks <= HostSpace::kMaxRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(ranks, " ranks on one host; from 1 to ", HostSpace::kMaxRanks, " can be"));
}

Header& HeaderOf(const shm::Segment& segment) { return *reinterpret_cast<Header*>(segment.data()); }

}  // namespace

absl::StatusOr<HostSpace> HostSpace::Create(int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment,
                          shm::Segment::Create("cohort-space", SpaceBytes(ranks)));
  HeaderOf(segment).magic.store(kMagic, std::memory_order_release);
  return HostSpace(std::move(segment), ranks);
}

absl::StatusOr<HostSpace> HostSpace::Attach(int fd, int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Map(fd, SpaceBytes(ranks)));
  if (HeaderOf(segment).magic.load(std::memory_order_acquire) != kMagic) {
    return absl::InvalidArgumentError("the shared memory is no space for ranks of this version");
  }
  return HostSpace(std::move(segment), ranks);
}

Poison& HostSpace::poison() const { return HeaderOf(segment_).poison; }

SleepWords& HostSpace::sleep_words() const { return HeaderOf(segment_).sleep_words; }

ArrivalLine& HostSpace::line(int rank, uint64_t turn) const {
  auto* const lines = reinterpret_cast<ArrivalLine*>(segment_.data() + kPage);
  return lines[static_cast<size_t>(rank) * 2 + turn % 2];
}

char* HostSpace::buffer(int rank, int which) const {
  const size_t number = static_cast<size_t>(rank) * 2 + static_cast<size_t>(which);
  return segment_.data() + kPage + LinesBytes(ranks_) + number * kBufferBytes;
}

}  // namespace cohort::worker
