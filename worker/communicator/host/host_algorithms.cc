#include "worker/communicator/host/host_algorithms.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/host/reduce/last_level_cache.h"

namespace cohort::worker {
namespace {

// An operation larger than most of the last-level cache loses its results from it before they are
// read. Below that size, stores past the cache cost three times as much.
int64_t StreamFrom() {
  static const int64_t most = std::max(LastLevelCacheBytes(), int64_t{8} << 20) / 8 * 7;
  return most;
}

}  // namespace

HostAlgorithms::HostAlgorithms(const HostSharedMemory& space, const RankHeaps& heaps,
                               const std::vector<int>& names, const FutexWaiter& waiter, int rank,
                               std::optional<int64_t> stream_from)
    : space_(space),
      heaps_(heaps),
      names_(names),
      waiter_(waiter),
      rank_(rank),
      stream_from_(stream_from.value_or(StreamFrom())),
      barrier_(space, waiter, names, rank) {
  const auto ranks = static_cast<size_t>(space.ranks());
  inputs_.resize(ranks);
  outputs_.resize(ranks);
  from_.reserve(ranks);
  to_.reserve(ranks);
}

absl::StatusOr<Algorithm> HostAlgorithms::ChooseLarge(const FlatCall& call, const void* input,
                                                      void* output, Instant deadline) {
  in_line_ = false;
  taken_out_ = StoresOf(OutputBytes(call, call.root, size()) * size());
  NextBuffer(First(call).size * Parts(call) * SizeOf(call.type));
  const auto place = [&](const void* memory, int64_t bytes) -> int64_t {
    if (bytes == 0) return 0;
    const shm::Segment* const heap = heaps_[static_cast<size_t>(rank_)].get();
    if (heap == nullptr) return kElsewhere;
    return heap->OffsetOf(memory, static_cast<size_t>(bytes)).value_or(kElsewhere);
  };
  const HeapOffsets own = {place(input, InputBytes(call, rank_, size())),
                           place(output, OutputBytes(call, rank_, size()))};
  // This counter is idle: every rank that used it has passed a barrier since.
  if (rank_ == 0) space_.taken(barrier_.sequence() + 1).store(0, std::memory_order_relaxed);
  static_assert(sizeof(own) <= ArrivalLine::kDataBytes);
  std::memcpy(barrier_.own_data(), &own, sizeof(own));
  put_late_ = AllowDirect(call, own);
  // The ranks learn the offsets of this rank when it has put its first chunk.
  if (!put_late_) return Algorithm::kStaged;
  COHORT_ASSIGN_OR_RETURN(const int direct, ArriveAndLearnOffsets(call, deadline));
  return direct == size() ? Algorithm::kDirect : Algorithm::kStaged;
}

absl::StatusOr<int> HostAlgorithms::ArriveAndLearnOffsets(const FlatCall& call, Instant deadline) {
  COHORT_RETURN_IF_ERROR(ArriveForBuffers(call, Stage::kPut, deadline));
  int direct = 0;
  for (int rank = 0; rank < size(); ++rank) {
    HeapOffsets offsets;
    std::memcpy(&offsets, barrier_.data(rank), sizeof(offsets));
    const auto number = static_cast<size_t>(rank);
    if (AllowDirect(call, offsets)) ++direct;
    const shm::Segment* const heap = heaps_[number].get();
    // Returns false if the place is not in the rank's heap.
    const auto find = [&](int64_t place, int64_t bytes, auto& pointer) {
      pointer = place == kElsewhere || heap == nullptr
                    ? nullptr
                    : heap->At(place, static_cast<size_t>(bytes));
      return pointer != nullptr || place == kElsewhere || bytes == 0;
    };
    if (!find(offsets.input, InputBytes(call, rank, size()), inputs_[number]) ||
        !find(offsets.output, OutputBytes(call, rank, size()), outputs_[number])) {
      const std::string text =
          absl::StrCat("rank ", names_[number], " names memory that it does not have");
      waiter_.SetPoison(text);
      return absl::AbortedError(text);
    }
  }
  return direct;
}

absl::Status HostAlgorithms::Deposit(const FlatCall& call, const void* data, int64_t bytes,
                                     Instant deadline, int64_t bytes_of_all) {
  bytes_of_all = std::max(bytes, bytes_of_all);
  in_line_ = bytes_of_all <= static_cast<int64_t>(ArrivalLine::kDataBytes);
  taken_out_ = Stores::kCached;
  NextBuffer(bytes_of_all);
  void* const room = in_line_ ? barrier_.own_data() : buffer(rank_);
  Copy(data, absl::MakeConstSpan(&room, 1), bytes);
  return ArriveForBuffers(call, Stage::kPut, deadline);
}

void HostAlgorithms::NextBuffer(int64_t bytes) {
  which_ = 1 - which_;
  if (in_line_) return;
  // The place moves on: memory that is rewritten soon must first be fetched from the reader's
  // cache.
  constexpr auto kRoom = static_cast<int64_t>(HostSharedMemory::kBufferBytes);
  constexpr auto kUnit = static_cast<int64_t>(kApart);
  const int64_t step = std::max((bytes + kUnit - 1) / kUnit * kUnit, kUnit);
  // The sequence number gives the offset: all ranks agree on the number, whatever they call.
  at_ = static_cast<int64_t>(barrier_.sequence() / 2) % std::max<int64_t>(kRoom / step, 1) * step;
}

absl::Status HostAlgorithms::ArriveForBuffers(const FlatCall& call, Stage stage, Instant deadline) {
  absl::Status status = ArriveAndWait(call, stage, deadline);
  // Ranks that called a different collective have taken no buffer. No rank reads from this one.
  if (!status.ok()) which_ = 1 - which_;
  return status;
}

const std::vector<const void*>& HostAlgorithms::Deposits(int64_t offset) {
  from_.clear();
  for (int rank = 0; rank < size(); ++rank) from_.push_back(deposit(rank) + offset);
  return from_;
}

const std::vector<const void*>& HostAlgorithms::DepositsAnd(const void* own, int64_t offset) {
  Deposits(offset);
  from_[static_cast<size_t>(rank_)] = own;
  return from_;
}

Chunk HostAlgorithms::First(const FlatCall& call) const {
  const int64_t room =
      static_cast<int64_t>(HostSharedMemory::kBufferBytes) / Parts(call) / SizeOf(call.type);
  return {0, std::min(room, call.count)};
}

Chunk HostAlgorithms::Next(const FlatCall& call, const Chunk& chunk) {
  const int64_t room = First(call).size;
  const int64_t at = chunk.at + room;
  if (at >= call.count) return {call.count, 0};
  // The other buffer is free: every rank had read it before it came to the last barrier.
  NextBuffer(room * Parts(call) * SizeOf(call.type));
  return {at, std::min(room, call.count - at)};
}

void HostAlgorithms::Put(void* to, const void* from, int64_t bytes) {
  put_.Run(bytes, [&](Stores stores) { Copy(from, absl::MakeConstSpan(&to, 1), bytes, stores); });
}

absl::Status HostAlgorithms::ArriveForChunk(const FlatCall& call, const Chunk& chunk,
                                            Instant deadline) {
  if (chunk.at > 0) return ArriveForBuffers(call, Stage::kPut, deadline);
  if (!put_late_) {
    COHORT_ASSIGN_OR_RETURN(const int direct, ArriveAndLearnOffsets(call, deadline));
    if (direct == 0) return absl::OkStatus();
  }
  // The ranks that expected the direct algorithm have put their data since the first barrier.
  return ArriveForBuffers(call, Stage::kPutLate, deadline);
}

Slice HostAlgorithms::SliceOf(int rank, int64_t bytes) const {
  constexpr auto kUnit = static_cast<int64_t>(kCacheLine);
  const int64_t units = (bytes + kUnit - 1) / kUnit;
  const int64_t begin = units * rank / size() * kUnit;
  const int64_t end = std::min(units * (rank + 1) / size() * kUnit, bytes);
  return {begin, end - begin};
}

const std::vector<const void*>& HostAlgorithms::Inputs(int64_t offset) {
  from_.clear();
  for (const char* const input : inputs_) from_.push_back(input + offset);
  return from_;
}

const std::vector<void*>& HostAlgorithms::OutputsBut(const void* input, int64_t offset) {
  to_.clear();
  for (char* const output : outputs_) {
    if (output + offset != input) to_.push_back(output + offset);
  }
  return to_;
}

void HostAlgorithms::ForOthers(int64_t bytes, int64_t touched,
                               absl::FunctionRef<void(Stores)> body) {
  const Stores stores = StoresOf(touched);
  if (stores == Stores::kStreaming) return body(stores);
  direct_.Run(bytes, body);
}

void HostAlgorithms::ForShare(int64_t bytes, int copies, int64_t touched,
                              absl::FunctionRef<void(Slice, Stores)> body) {
  const Stores stores = StoresOf(touched);
  if (stores == Stores::kCached) {
    const Slice own = SliceOf(rank_, bytes);
    return ForOthers(own.size * copies, touched, [&](Stores choice) { body(own, choice); });
  }
  // A faster rank takes more pieces. The result does not depend on which rank takes a piece.
  constexpr int64_t kPiece = int64_t{256} << 10;
  const int64_t pieces = (bytes + kPiece - 1) / kPiece;
  std::atomic<int64_t>& taken = space_.taken(barrier_.sequence());
  // The loop ends after `pieces` iterations, whatever another process writes to the counter.
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t piece = taken.fetch_add(1, std::memory_order_relaxed);
    if (piece < 0) {
      return waiter_.SetPoison(absl::StrCat("rank ", names_[static_cast<size_t>(rank_)],
                                            " found shared memory damaged: the number of a piece "
                                            "is ",
                                            piece));
    }
    if (piece >= pieces) return;
    const int64_t begin = piece * kPiece;
    body({begin, std::min(kPiece, bytes - begin)}, stores);
  }
}

}  // namespace cohort::worker
