// The three ways of HostCommunicator, of which its collectives are made.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/host/last_cache.h"

namespace cohort::worker {
namespace {

// The places of a rank's tensors: offsets in its heap, or kElsewhere. If the rank has no such
// tensor, its place may be anything.
constexpr int64_t kElsewhere = -1;
struct Places {
  int64_t input;
  int64_t output;
};
static_assert(sizeof(Places) <= ArrivalLine::kDataBytes);

int64_t PlaceOf(const shm::Segment* heap, const void* memory, int64_t bytes) {
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
  static const int64_t most = std::max(LastCacheBytes(), int64_t{8} << 20) / 8 * 7;
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
      meeting_(space_, waiter_, names_, rank),
      mailbox_(space_, heaps_, waiter_, rank),
      notes_(space_, heaps_, waiter_, rank, Mail::kNotes) {
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
  void* const room = in_line_ ? meeting_.own_data() : buffer(rank_);
  Copy(data, absl::MakeConstSpan(&room, 1), bytes);
  return MeetForBuffers(call, kPut, deadline);
}

void HostCommunicator::NextBuffer(int64_t bytes) {
  which_ = 1 - which_;
  if (in_line_) return;
  // The place moves on: memory that is rewritten soon must first be fetched from the reader's
  // cache.
  constexpr auto kRoom = static_cast<int64_t>(HostSpace::kBufferBytes);
  constexpr auto kUnit = static_cast<int64_t>(kApart);
  const int64_t step = std::max((bytes + kUnit - 1) / kUnit * kUnit, kUnit);
  // The turn gives the place: all ranks agree on the turn, whatever they call.
  at_ = static_cast<int64_t>(meeting_.turn() / 2) % std::max<int64_t>(kRoom / step, 1) * step;
}

absl::Status HostCommunicator::MeetForBuffers(const FlatCall& call, int stage, Instant deadline) {
  absl::Status status = meeting_.Meet(call, stage, deadline);
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
                                     const Ways& ways, Instant deadline) {
  in_line_ = false;
  taken_out_ = StoresOf(OutputBytes(call, call.root, size()) * size());
  const Chunk first = FirstChunk(call, ways);
  const int64_t buffer_bytes = first.size * ways.parts * SizeOf(call.type);
  NextBuffer(buffer_bytes);
  const shm::Segment* const heap = heaps_[static_cast<size_t>(rank_)].get();
  const Places own = {PlaceOf(heap, input, InputBytes(call, rank_, size())),
                      PlaceOf(heap, output, OutputBytes(call, rank_, size()))};
  // This rank knows already that there is no direct way.
  const bool staged = (ways.needs_inputs && own.input == kElsewhere) ||
                      (ways.needs_outputs && own.output == kElsewhere);
  if (staged) ways.put(first);
  // This counter is idle: every rank that used it has passed a meeting since.
  if (rank_ == 0) space_.taken(meeting_.turn() + 1).store(0, std::memory_order_relaxed);
  std::memcpy(meeting_.own_data(), &own, sizeof(own));
  COHORT_RETURN_IF_ERROR(MeetForBuffers(call, kPut, deadline));
  COHORT_ASSIGN_OR_RETURN(const Agreed agreed, LearnPlaces(call, ways));
  if (agreed == Agreed::kDirect) {
    ways.direct();
    return meeting_.Meet(call, kDone, deadline);
  }
  if (agreed == Agreed::kMixed) {
    // Ranks that expected the direct way put their data now.
    if (!staged) ways.put(first);
    COHORT_RETURN_IF_ERROR(MeetForBuffers(call, kPutLate, deadline));
  }
  Chunk chunk = first;
  COHORT_RETURN_IF_ERROR(ways.take(chunk));
  const int64_t room = chunk.size;
  for (chunk.at += room; chunk.at < call.count; chunk.at += room) {
    chunk.size = std::min(room, call.count - chunk.at);
    // The other buffer is free: every rank had read it before it came to the last meeting.
    NextBuffer(buffer_bytes);
    ways.put(chunk);
    COHORT_RETURN_IF_ERROR(MeetForBuffers(call, kPut, deadline));
    COHORT_RETURN_IF_ERROR(ways.take(chunk));
  }
  return absl::OkStatus();
}

HostCommunicator::Chunk HostCommunicator::FirstChunk(const FlatCall& call, const Ways& ways) const {
  const int64_t room =
      static_cast<int64_t>(HostSpace::kBufferBytes) / ways.parts / SizeOf(call.type);
  return {0, std::min(room, call.count)};
}

absl::StatusOr<HostCommunicator::Agreed> HostCommunicator::LearnPlaces(const FlatCall& call,
                                                                       const Ways& ways) {
  bool direct = true;
  bool staged = true;
  for (int rank = 0; rank < size(); ++rank) {
    Places places;
    std::memcpy(&places, meeting_.data(rank), sizeof(places));
    const auto number = static_cast<size_t>(rank);
    const bool here = !(ways.needs_inputs && places.input == kElsewhere) &&
                      !(ways.needs_outputs && places.output == kElsewhere);
    direct = direct && here;
    staged = staged && !here;
    const shm::Segment* const heap = heaps_[number].get();
    // Returns false if the place is not in the rank's heap.
    const auto find = [&](int64_t place, int64_t bytes, auto& pointer) {
      pointer = place == kElsewhere || heap == nullptr
                    ? nullptr
                    : heap->At(place, static_cast<size_t>(bytes));
      return pointer != nullptr || place == kElsewhere || bytes == 0;
    };
    if (!find(places.input, InputBytes(call, rank, size()), inputs_[number]) ||
        !find(places.output, OutputBytes(call, rank, size()), outputs_[number])) {
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
  std::atomic<int64_t>& taken = space_.taken(meeting_.turn());
  // The loop ends after `pieces` turns, whatever another process writes to the counter.
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
