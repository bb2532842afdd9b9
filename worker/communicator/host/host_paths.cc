// The three paths of HostCommunicator, of which its collectives are made.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/host/reduce/last_level_cache.h"

namespace cohort::worker {
namespace {

// The offsets of a rank's tensors in its heap, or kElsewhere. If the rank has no such
// tensor, its offset may be anything.
constexpr int64_t kElsewhere = -1;
struct HeapOffsets {
  int64_t input;
  int64_t output;
};
static_assert(sizeof(HeapOffsets) <= ArrivalLine::kDataBytes);

int64_t HeapOffsetOf(const shm::Segment* heap, const void* memory, int64_t bytes) {
  if (bytes == 0) return 0;
  if (heap == nullptr) return kElsewhere;
  return heap->OffsetOf(memory, static_cast<size_t>(bytes)).value_or(kElsewhere);
}

std::vector<int> Counted(int ranks) {
  std::vector<int> names(static_cast<size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

// An operation larger than most of the last-level cache loses its results from it before they are
// read. Below that size, stores past the cache cost three times as much.
int64_t StreamFrom() {
  static const int64_t most = std::max(LastLevelCacheBytes(), int64_t{8} << 20) / 8 * 7;
  return most;
}

}  // namespace

HostCommunicator::HostCommunicator(HostMemory memory, int rank)
    : space_(std::move(memory.space)),
      heaps_(std::move(memory.heaps)),
      names_(memory.names.empty() ? Counted(space_.ranks()) : std::move(memory.names)),
      rank_(rank),
      stream_from_(StreamFrom()),
      waiter_(space_, rank, memory.gives_way, memory.waits),
      barrier_(space_, waiter_, names_, rank),
      mailbox_(space_, heaps_, waiter_, rank),
      control_mailbox_(space_, heaps_, waiter_, rank, Mail::kControlMessages) {
  const auto ranks = static_cast<size_t>(space_.ranks());
  inputs_.resize(ranks);
  outputs_.resize(ranks);
  from_.reserve(ranks);
  to_.reserve(ranks);
}

absl::Status HostCommunicator::Deposit(const FlatCall& call, const void* data, int64_t bytes,
                                       Instant deadline, int64_t bytes_of_all) {
  bytes_of_all = std::max(bytes, bytes_of_all);
  in_line_ = bytes_of_all <= static_cast<int64_t>(ArrivalLine::kDataBytes);
  taken_out_ = Stores::kCached;
  NextBuffer(bytes_of_all);
  void* const room = in_line_ ? barrier_.own_data() : buffer(rank_);
  Copy(data, absl::MakeConstSpan(&room, 1), bytes);
  return ArriveForBuffers(call, kPut, deadline);
}

void HostCommunicator::NextBuffer(int64_t bytes) {
  which_ = 1 - which_;
  if (in_line_) return;
  // The offset moves on: memory that is rewritten soon must first be fetched from the reader's
  // cache.
  constexpr auto kRoom = static_cast<int64_t>(HostSharedMemory::kBufferBytes);
  constexpr auto kUnit = static_cast<int64_t>(kApart);
  const int64_t step = std::max((bytes + kUnit - 1) / kUnit * kUnit, kUnit);
  // The sequence number gives the offset: all ranks agree on the number, whatever they call.
  at_ = static_cast<int64_t>(barrier_.sequence() / 2) % std::max<int64_t>(kRoom / step, 1) * step;
}

absl::Status HostCommunicator::ArriveForBuffers(const FlatCall& call, int stage, Instant deadline) {
  absl::Status status = barrier_.ArriveAndWait(call, stage, deadline);
  // Ranks that called a different collective have taken no buffer. No rank reads from this one.
  if (!status.ok()) which_ = 1 - which_;
  return status;
}

const std::vector<const void*>& HostCommunicator::Deposits(int64_t offset) {
  from_.clear();
  for (int rank = 0; rank < size(); ++rank) from_.push_back(deposit(rank) + offset);
  return from_;
}

const std::vector<const void*>& HostCommunicator::DepositsAnd(const void* own, int64_t offset) {
  Deposits(offset);
  from_[static_cast<size_t>(rank_)] = own;
  return from_;
}

absl::Status HostCommunicator::Large(const FlatCall& call, const void* input, void* output,
                                     const Paths& paths, Instant deadline) {
  in_line_ = false;
  taken_out_ = StoresOf(OutputBytes(call, call.root, size()) * size());
  const Chunk first = FirstChunk(call, paths);
  const int64_t buffer_bytes = first.size * paths.parts * SizeOf(call.type);
  NextBuffer(buffer_bytes);
  const shm::Segment* const heap = heaps_[static_cast<size_t>(rank_)].get();
  const HeapOffsets own = {HeapOffsetOf(heap, input, InputBytes(call, rank_, size())),
                           HeapOffsetOf(heap, output, OutputBytes(call, rank_, size()))};
  // This rank knows already that there is no direct path.
  const bool staged = (paths.needs_inputs && own.input == kElsewhere) ||
                      (paths.needs_outputs && own.output == kElsewhere);
  if (staged) paths.put(first);
  // This counter is idle: every rank that used it has passed a barrier since.
  if (rank_ == 0) space_.taken(barrier_.sequence() + 1).store(0, std::memory_order_relaxed);
  std::memcpy(barrier_.own_data(), &own, sizeof(own));
  COHORT_RETURN_IF_ERROR(ArriveForBuffers(call, kPut, deadline));
  COHORT_ASSIGN_OR_RETURN(const Agreed agreed, ReadHeapOffsets(call, paths));
  if (agreed == Agreed::kDirect) {
    paths.direct();
    return barrier_.ArriveAndWait(call, kDone, deadline);
  }
  if (agreed == Agreed::kMixed) {
    // Ranks that expected the direct path put their data now.
    if (!staged) paths.put(first);
    COHORT_RETURN_IF_ERROR(ArriveForBuffers(call, kPutLate, deadline));
  }
  Chunk chunk = first;
  COHORT_RETURN_IF_ERROR(paths.take(chunk));
  const int64_t room = chunk.size;
  for (chunk.at += room; chunk.at < call.count; chunk.at += room) {
    chunk.size = std::min(room, call.count - chunk.at);
    // The other buffer is free: every rank had read it before it came to the last barrier.
    NextBuffer(buffer_bytes);
    paths.put(chunk);
    COHORT_RETURN_IF_ERROR(ArriveForBuffers(call, kPut, deadline));
    COHORT_RETURN_IF_ERROR(paths.take(chunk));
  }
  return absl::OkStatus();
}

HostCommunicator::Chunk HostCommunicator::FirstChunk(const FlatCall& call,
                                                     const Paths& paths) const {
  const int64_t room =
      static_cast<int64_t>(HostSharedMemory::kBufferBytes) / paths.parts / SizeOf(call.type);
  return {0, std::min(room, call.count)};
}

absl::StatusOr<HostCommunicator::Agreed> HostCommunicator::ReadHeapOffsets(const FlatCall& call,
                                                                           const Paths& paths) {
  bool direct = true;
  bool staged = true;
  for (int rank = 0; rank < size(); ++rank) {
    HeapOffsets offsets;
    std::memcpy(&offsets, barrier_.data(rank), sizeof(offsets));
    const auto number = static_cast<size_t>(rank);
    const bool here = !(paths.needs_inputs && offsets.input == kElsewhere) &&
                      !(paths.needs_outputs && offsets.output == kElsewhere);
    direct = direct && here;
    staged = staged && !here;
    const shm::Segment* const heap = heaps_[number].get();
    // Returns false if the offset is not in the rank's heap.
    const auto find = [&](int64_t offset, int64_t bytes, auto& pointer) {
      pointer = offset == kElsewhere || heap == nullptr
                    ? nullptr
                    : heap->At(offset, static_cast<size_t>(bytes));
      return pointer != nullptr || offset == kElsewhere || bytes == 0;
    };
    if (!find(offsets.input, InputBytes(call, rank, size()), inputs_[number]) ||
        !find(offsets.output, OutputBytes(call, rank, size()), outputs_[number])) {
      const std::string text =
          absl::StrCat("rank ", names_[number], " names memory that it does not have");
      Abort(text);
      return absl::AbortedError(text);
    }
  }
  return direct ? Agreed::kDirect : staged ? Agreed::kStaged : Agreed::kMixed;
}

HostCommunicator::Slice HostCommunicator::SliceOf(int rank, int64_t bytes) const {
  constexpr auto kUnit = static_cast<int64_t>(kCacheLine);
  const int64_t units = (bytes + kUnit - 1) / kUnit;
  const int64_t begin = units * rank / size() * kUnit;
  const int64_t end = std::min(units * (rank + 1) / size() * kUnit, bytes);
  return {begin, end - begin};
}

void HostCommunicator::Put(void* to, const void* from, int64_t bytes) {
  put_.Run(bytes, [&](Stores stores) { Copy(from, absl::MakeConstSpan(&to, 1), bytes, stores); });
}

void HostCommunicator::ForOthers(int64_t bytes, int64_t touched,
                                 absl::FunctionRef<void(Stores)> body) {
  const Stores stores = StoresOf(touched);
  if (stores == Stores::kStreaming) return body(stores);
  direct_.Run(bytes, body);
}

void HostCommunicator::ForShare(int64_t bytes, int copies, int64_t touched,
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
      return Abort(absl::StrCat("rank ", names_[static_cast<size_t>(rank_)],
                                " found shared memory damaged: the number of a piece is ", piece));
    }
    if (piece >= pieces) return;
    const int64_t begin = piece * kPiece;
    body({begin, std::min(kPiece, bytes - begin)}, stores);
  }
}

const std::vector<const void*>& HostCommunicator::Inputs(int64_t offset) {
  from_.clear();
  for (const char* const input : inputs_) from_.push_back(input + offset);
  return from_;
}

const std::vector<void*>& HostCommunicator::OutputsBut(const void* input, int64_t offset) {
  to_.clear();
  for (char* const output : outputs_) {
    if (output + offset != input) to_.push_back(output + offset);
  }
  return to_;
}

Stores HostCommunicator::StoresOf(int64_t bytes) const {
  return bytes >= stream_from_ ? Stores::kStreaming : Stores::kCached;
}

}  // namespace cohort::worker
