#include "worker/communicator/nccl/agreement/nccl_operation_log.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

constexpr uint64_t kMagic = 0x636f686f72744232;  // changes with the layout
constexpr size_t kMaxText = 2000;
constexpr size_t kMaxRefusal = 500;
constexpr absl::string_view kNotALog = "the shared memory is not an operation log of this version";
constexpr size_t kEntryWords = sizeof(NcclOperationLog::Entry) / sizeof(uint64_t);

enum ErrorState : uint32_t { kNone = 0, kBeingWritten = 1, kWritten = 2 };

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
  if (ranks >= 1 && ranks <= NcclOperationLog::kMaxRanks) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "an operation log for ", ranks, " ranks; it can have 1 to ", NcclOperationLog::kMaxRanks));
}

}  // namespace

struct alignas(64) NcclOperationLog::Header {
  std::atomic<uint64_t> magic;
  std::atomic<uint32_t> error;
  uint32_t code;
  uint32_t size;
  char text[kMaxText];
};

struct NcclOperationLog::RankLog {
  alignas(64) std::atomic<int64_t> posted;
  alignas(64) std::atomic<int64_t> started;
  std::atomic<int64_t> finished;
  alignas(64) std::atomic<int64_t> refused;  // the entry of the text; 0 while it is written
  std::atomic<char> refusal[kMaxRefusal];
  Line lines[kEntries];
};

size_t NcclOperationLog::Bytes(int ranks) {
  return sizeof(Header) + sizeof(RankLog) * static_cast<size_t>(ranks);
}

NcclOperationLog::Header& NcclOperationLog::header() const {
  return *reinterpret_cast<Header*>(segment_.data());
}

NcclOperationLog::RankLog& NcclOperationLog::rank_log(int rank) const {
  return reinterpret_cast<RankLog*>(segment_.data() + sizeof(Header))[rank];
}

absl::StatusOr<NcclOperationLog> NcclOperationLog::Create(int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment,
                          shm::Segment::Create("cohort-operation-log", Bytes(ranks)));
  NcclOperationLog operation_log(std::move(segment), ranks);
  operation_log.header().magic.store(kMagic, std::memory_order_release);
  return operation_log;
}

absl::StatusOr<NcclOperationLog> NcclOperationLog::Attach(int fd, int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  COHORT_ASSIGN_OR_RETURN(shm::Segment segment, shm::Segment::Map(fd, Bytes(ranks)));
  NcclOperationLog operation_log(std::move(segment), ranks);
  if (operation_log.header().magic.load(std::memory_order_acquire) != kMagic) {
    return absl::InvalidArgumentError(kNotALog);
  }
  return operation_log;
}

absl::StatusOr<NcclOperationLog> NcclOperationLog::Over(shm::Segment segment, int ranks) {
  COHORT_RETURN_IF_ERROR(CheckRanks(ranks));
  if (segment.size() != Bytes(ranks)) return absl::InvalidArgumentError(kNotALog);
  NcclOperationLog operation_log(std::move(segment), ranks);
  uint64_t found = 0;
  // It makes no difference which rank is the first: all else of a new operation log is zeros.
  if (operation_log.header().magic.compare_exchange_strong(found, kMagic) || found == kMagic)
    return operation_log;
  return absl::InvalidArgumentError(kNotALog);
}

void NcclOperationLog::Post(int rank, const Entry& entry) const {
  RankLog& mine = rank_log(rank);
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

void NcclOperationLog::PostRefusal(int rank, const Entry& entry, absl::string_view why) const {
  RankLog& mine = rank_log(rank);
  const size_t size = std::min(why.size(), kMaxRefusal - 1);
  mine.refused.store(0, std::memory_order_relaxed);
  // A rank that sees one of these characters also sees that the entry is 0.
  for (size_t i = 0; i < size; ++i) mine.refusal[i].store(why[i], std::memory_order_release);
  mine.refusal[size].store('\0', std::memory_order_release);
  mine.refused.store(posted(rank) + 1, std::memory_order_release);
  Post(rank, entry);
}

std::string NcclOperationLog::RefusalOf(int rank, int64_t sequence) const {
  const RankLog& log = rank_log(rank);
  if (log.refused.load(std::memory_order_acquire) != sequence) return "";
  std::string text;
  for (const std::atomic<char>& each : log.refusal) {
    const char character = each.load(std::memory_order_acquire);
    if (character == '\0') break;
    text += character;
  }
  return log.refused.load(std::memory_order_relaxed) == sequence ? text : "";
}

int64_t NcclOperationLog::posted(int rank) const {
  return rank_log(rank).posted.load(std::memory_order_acquire);
}

std::optional<NcclOperationLog::Entry> NcclOperationLog::Read(int rank, int64_t sequence) const {
  if (sequence < 1) return std::nullopt;
  const Line& line = rank_log(rank).lines[sequence % kEntries];
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

void NcclOperationLog::Advance(int rank, const Progress& progress) const {
  Raise(rank_log(rank).started, progress.started);
  Raise(rank_log(rank).finished, progress.finished);
}

NcclOperationLog::Progress NcclOperationLog::progress(int rank) const {
  return {rank_log(rank).started.load(std::memory_order_relaxed),
          rank_log(rank).finished.load(std::memory_order_relaxed)};
}

std::optional<NcclOperationLog::Difference> NcclOperationLog::FindDifference(int rank) const {
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
    if (difference.sequence == 0) continue;
    if (IsRefusal(difference.mine)) difference.my_refusal = RefusalOf(rank, difference.sequence);
    if (IsRefusal(difference.theirs))
      difference.their_refusal = RefusalOf(other, difference.sequence);
    return difference;
  }
  return std::nullopt;
}

void NcclOperationLog::Fail(const absl::Status& status) const {
  Header& h = header();
  uint32_t none = kNone;
  if (!h.error.compare_exchange_strong(none, kBeingWritten, std::memory_order_acquire)) return;
  h.code = static_cast<uint32_t>(status.code());
  h.size = static_cast<uint32_t>(std::min(status.message().size(), kMaxText));
  std::copy_n(status.message().data(), h.size, h.text);
  h.error.store(kWritten, std::memory_order_release);
}

absl::Status NcclOperationLog::error() const {
  const Header& h = header();
  if (h.error.load(std::memory_order_acquire) != kWritten) return absl::OkStatus();
  const absl::string_view text(h.text, std::min<size_t>(h.size, kMaxText));
  return static_cast<absl::StatusCode>(h.code) == absl::StatusCode::kInvalidArgument
             ? absl::InvalidArgumentError(text)
             : AbortError(text);
}

}  // namespace cohort::worker
