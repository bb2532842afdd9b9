#include "worker/communicator/nccl/nccl_board.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

constexpr uint64_t kMagic = 0x636f686f72744231;  // changes with the layout
constexpr size_t kMaxText = 2000;
constexpr absl::string_view kNoBoard = "the shared memory is no board of this version";
constexpr size_t kEntryWords = sizeof(NcclBoard::Entry) / sizeof(uint64_t);

enum VerdictState : uint32_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };

// Words: a rank that reads while another writes reads some values, and detects it.
struct alignas(64) Line {
  std::atomic<int64_t> sequence;  // 0 while it is written
  std::atomic<uint64_t> words[kEntryWords];
};
static_assert(sizeof(Line) == 64);

void Raise(std::atomic<int64_t>& value, int64_t to) {
  int64_t now = value.load(std::memory_order_relaxed);
  while (now < to && !value.compare_exchange_weak(now, to, std::memory_order_relaxed)) {
  }
}

absl::Status CheckRanks(int ranks) {
  if (ranks >= 1 && ranks <= NcclBoard::kMaxRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a board for ", ranks, " ranks; it can have 1 to ", NcclBoard::kMaxRanks));
}

}  // namespace

struct alignas(64) NcclBoard::Header {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> verdict;
  uint32_t code;
  uint32_t size;
  char text[kMaxText];
};

struct NcclBoard::Seat {
  alignas(64) std::atomic<int64_t> posted;
  alignas(64) std::atomic<int64_t> started;
  std::atomic<int64_t> finished;
  Line lines[kEntries];
};

size_t NcclBoard::Bytes(int ranks) {
  return sizeof(Header) + sizeof(Seat) * static_cast<size_t>(ranks);
}

NcclBoard::Header& NcclBoard::header() const { return *reinterpret_cast<Header*>(segment_.data()); }

NcclBoard::Seat& NcclBoard::seat(int rank) const {
  return reinterpret_cast<Seat*>(segment_.data() + sizeof(Header))[rank];
}

absl::StatusOr<NcclBoard> NcclBoard::Create(int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Create("cohort-board", Bytes(ranks)));
  NcclBoard board(std::move(segment), ranks);
  board.header().magic.store(kMagic, std::memory_order_release);
  return board;
}

absl::StatusOr<NcclBoard> NcclBoard::Attach(int fd, int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Map(fd, Bytes(ranks)));
  NcclBoard board(std::move(segment), ranks);
  if (board.header().magic.load(std::memory_order_acquire) != kMagic) {
    return absl::InvalidArgumentError(kNoBoard);
  }
  return board;
}

absl::StatusOr<NcclBoard> NcclBoard::Over(shm::Segment segment, int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  if (segment.size() != Bytes(ranks)) return absl::InvalidArgumentError(kNoBoard);
  NcclBoard board(std::move(segment), ranks);
  uint64_t found = 0;
  // It makes no difference which rank is the first: all else of a new board is zeros.
  if (board.header().magic.compare_exchange_strong(found, kMagic) || found == kMagic) return board;
  return absl::InvalidArgumentError(kNoBoard);
}

void NcclBoard::Post(int rank, const Entry& entry) const {
  Seat& mine = seat(rank);
  const int64_t sequence = mine.posted.load(std::memory_order_relaxed) + 1;
  Line& line = mine.lines[sequence % kEntries];
  std::array<uint64_t, kEntryWords> words;
  std::memcpy(words.data(), &entry, sizeof(entry));
  line.sequence.store(0, std::memory_order_relaxed);
  // A rank that sees one of these words also sees that the sequence is 0.
  for (size_t i = 0; i < kEntryWords; ++i) {
    line.words[i].store(words[i], std::memory_order_release);
  }
  line.sequence.store(sequence, std::memory_order_release);
  mine.posted.store(sequence, std::memory_order_release);
}

int64_t NcclBoard::posted(int rank) const {
  return seat(rank).posted.load(std::memory_order_acquire);
}

std::optional<NcclBoard::Entry> NcclBoard::Read(int rank, int64_t sequence) const {
  if (sequence < 1) return std::nullopt;
  const Line& line = seat(rank).lines[sequence % kEntries];
  if (line.sequence.load(std::memory_order_acquire) != sequence) return std::nullopt;
  std::array<uint64_t, kEntryWords> words;
  for (size_t i = 0; i < kEntryWords; ++i) {
    words[i] = line.words[i].load(std::memory_order_acquire);
  }
  if (line.sequence.load(std::memory_order_relaxed) != sequence) return std::nullopt;
  Entry entry;
  std::memcpy(static_cast<void*>(&entry), words.data(), sizeof(entry));
  return entry;
}

void NcclBoard::Advance(int rank, const Progress& progress) const {
  Raise(seat(rank).started, progress.started);
  Raise(seat(rank).finished, progress.finished);
}

NcclBoard::Progress NcclBoard::progress(int rank) const {
  return {seat(rank).started.load(std::memory_order_relaxed),
          seat(rank).finished.load(std::memory_order_relaxed)};
}

std::optional<NcclBoard::Difference> NcclBoard::FindDifference(int rank) const {
  for (int other = 0; other < ranks_; ++other) {
    if (other == rank) continue;
    Difference difference;
    difference.rank = other;
    for (int64_t at = std::min(posted(rank), posted(other)); at > 0; --at) {
      const std::optional<Entry> mine = Read(rank, at);
      const std::optional<Entry> theirs = Read(other, at);
      if (!mine.has_value() || !theirs.has_value()) {
        difference.is_first = false;
        break;
      }
      if (mine->chain == theirs->chain) break;
      difference.sequence = at;
      difference.mine = mine->line;
      difference.theirs = theirs->line;
    }
    if (difference.sequence > 0) return difference;
  }
  return std::nullopt;
}

void NcclBoard::Condemn(const absl::Status& status) const {
  Header& h = header();
  uint32_t none = kNone;
  if (!h.verdict.compare_exchange_strong(none, kBeingWritten, std::memory_order_acquire)) return;
  h.code = static_cast<uint32_t>(status.code());
  h.size = static_cast<uint32_t>(std::min(status.message().size(), kMaxText));
  std::copy_n(status.message().data(), h.size, h.text);
  h.verdict.store(kWritten, std::memory_order_release);
}

absl::Status NcclBoard::verdict() const {
  const Header& h = header();
  if (h.verdict.load(std::memory_order_acquire) != kWritten) return absl::OkStatus();
  const auto code = static_cast<absl::StatusCode>(h.code);
  return absl::Status(
      code == absl::StatusCode::kInvalidArgument ? code : absl::StatusCode::kAborted,
      absl::string_view(h.text, std::min<size_t>(h.size, kMaxText)));
}

}  // namespace cohort::worker
