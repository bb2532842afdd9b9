#include "worker/communicator/host/host_communicator.h"

#include <numeric>
#include <utility>

#include "absl/base/attributes.h"
#include "base/status_macros.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"

namespace cohort::worker {
namespace {

// Up to this size every rank reduces all of a chunk itself; above, each reduces its slice, and they
// wait at the barrier again.
constexpr int64_t kOneShotBytes = int64_t{16} << 10;

const char* At(const void* from, int64_t bytes) { return static_cast<const char*>(from) + bytes; }
char* At(void* to, int64_t bytes) { return static_cast<char*>(to) + bytes; }

// Does nothing if the memory is already in place.
void CopyOne(void* to, const void* from, int64_t bytes, Stores stores = Stores::kCached) {
  if (to != from) Copy(from, absl::MakeConstSpan(&to, 1), bytes, stores);
}

std::vector<int> Counted(int ranks) {
  std::vector<int> names(static_cast<size_t>(ranks));
  std::iota(names.begin(), names.end(), 0);
  return names;
}

}  // namespace

HostCommunicator::HostCommunicator(HostMemory memory, int rank)
    : space_(std::move(memory.space)),
      heaps_(std::move(memory.heaps)),
      names_(memory.names.empty() ? Counted(space_.ranks()) : std::move(memory.names)),
      rank_(rank),
      waiter_(space_, rank, memory.gives_way, memory.waits),
      paths_(space_, heaps_, names_, waiter_, rank),
      mailbox_(space_, heaps_, waiter_, rank),
      control_mailbox_(space_, heaps_, waiter_, rank, MessageChannel::kControl) {}

absl::Status HostCommunicator::Run(const FlatCall& call, const void* input, void* output,
                                   Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckArguments(call, rank_, size(), input, output));
  if (call.collective == Collective::kBarrier)
    return paths_.ArriveAndWait(call, Stage::kPut, deadline);
  if (call.collective == Collective::kBroadcast && call.eager &&
      call.count * SizeOf(call.type) <= space_.eager_broadcast_bytes()) {
    return RunEagerBroadcast(call, input, output, deadline);
  }
  Path path = Path::kSmall;
  if (!paths_.IsSmall(call)) {
    COHORT_ASSIGN_OR_RETURN(path, paths_.ChooseLarge(call, input, output, deadline));
  }
  switch (call.collective) {
    case Collective::kAllReduce:
      return RunAllReduce(call, input, output, deadline, path);
    case Collective::kReduce:
      return RunReduce(call, input, output, deadline, path);
    case Collective::kBroadcast:
      return RunBroadcast(call, input, output, deadline, path);
    case Collective::kAllGather:
      return RunAllGather(call, input, output, deadline, path);
    case Collective::kReduceScatter:
      return RunReduceScatter(call, input, output, deadline, path);
    case Collective::kAllToAll:
      return RunAllToAll(call, input, output, deadline, path);
    case Collective::kGather:
      return RunGather(call, input, output, deadline, path);
    default:
      return RunScatter(call, input, output, deadline, path);
  }
}

void HostCommunicator::PutChunk(const FlatCall& call, const void* input, const Chunk& chunk) {
  const int64_t element = SizeOf(call.type);
  paths_.Put(paths_.buffer(rank_), At(input, chunk.at * element), chunk.size * element);
}

void HostCommunicator::PutChunkOfEachPart(const FlatCall& call, const void* input,
                                          const Chunk& chunk) {
  const int64_t element = SizeOf(call.type);
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    paths_.Put(paths_.buffer(rank_) + rank * chunk.size * element,
               At(input, (rank * call.count + chunk.at) * element), chunk.size * element);
  }
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void HostCommunicator::ReduceDeposits(const FlatCall& call,
                                                                          void* output,
                                                                          const Chunk& chunk) {
  void* const result = At(output, chunk.at * SizeOf(call.type));
  worker::Reduce(call.type, call.reduction, paths_.Deposits(), absl::MakeConstSpan(&result, 1),
                 chunk.size, paths_.taken_out());
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void HostCommunicator::CollectDeposits(const FlatCall& call,
                                                                           const void* input,
                                                                           void* output,
                                                                           const Chunk& chunk) {
  const int64_t element = SizeOf(call.type);
  for (int step = 0; step < size(); ++step) {
    const int rank = (rank_ + step) % size();
    CopyOne(At(output, (rank * call.count + chunk.at) * element),
            step == 0 ? At(input, chunk.at * element) : paths_.deposit(rank), chunk.size * element,
            paths_.taken_out());
  }
}

absl::Status HostCommunicator::RunAllReduce(const FlatCall& call, const void* input, void* output,
                                            Instant deadline, Path path) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(paths_.Deposit(call, input, bytes, deadline));
      worker::Reduce(call.type, call.reduction, paths_.Deposits(), absl::MakeConstSpan(&output, 1),
                     call.count);
      return absl::OkStatus();
    case Path::kDirect:
      paths_.ForShare(bytes, size() - 1, 2 * bytes * size(), [&](Slice share, Stores stores) {
        worker::Reduce(call.type, call.reduction, paths_.Inputs(share.begin),
                       paths_.Outputs(share.begin), share.size / element, stores);
      });
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      break;
  }
  return StagedAllReduce(call, input, output, deadline);
}

absl::Status HostCommunicator::StagedAllReduce(const FlatCall& call, const void* input,
                                               void* output, Instant deadline) {
  const int64_t element = SizeOf(call.type);
  for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
    const int64_t bytes = chunk.size * element;
    if (bytes <= kOneShotBytes) {
      PutChunk(call, input, chunk);
      COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
      ReduceDeposits(call, output, chunk);
      continue;
    }
    const char* const from = At(input, chunk.at * element);
    char* const to = At(output, chunk.at * element);
    char* const buffer = paths_.buffer(rank_);
    // No other rank reads this rank's slice of the input.
    const Slice own = paths_.SliceOf(rank_, bytes);
    const int64_t end = own.begin + own.size;
    paths_.Put(buffer, from, own.begin);
    paths_.Put(buffer + end, from + end, bytes - end);
    COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
    // The buffer of this rank's slice is free for the result.
    void* const results[] = {buffer + own.begin, to + own.begin};
    worker::Reduce(call.type, call.reduction, paths_.DepositsAnd(from + own.begin, own.begin),
                   results, own.size / element, paths_.put_stores());
    COHORT_RETURN_IF_ERROR(paths_.ArriveAndWait(call, Stage::kReduced, deadline));
    for (int step = 1; step < size(); ++step) {
      const int owner = (rank_ + step) % size();
      const Slice slice = paths_.SliceOf(owner, bytes);
      CopyOne(to + slice.begin, paths_.buffer(owner) + slice.begin, slice.size, paths_.taken_out());
    }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunReduce(const FlatCall& call, const void* input, void* output,
                                         Instant deadline, Path path) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(paths_.Deposit(call, input, bytes, deadline));
      if (rank_ == call.root) ReduceDeposits(call, output, {0, call.count});
      return absl::OkStatus();
    case Path::kDirect:
      // 0 copies: a rank reads all inputs to store one output, so the time says little about
      // stores.
      paths_.ForShare(bytes, 0, bytes * (size() + 1), [&](Slice share, Stores stores) {
        void* const result = paths_.output(call.root) + share.begin;
        worker::Reduce(call.type, call.reduction, paths_.Inputs(share.begin),
                       absl::MakeConstSpan(&result, 1), share.size / element, stores);
      });
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
        PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
        if (rank_ == call.root) ReduceDeposits(call, output, chunk);
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunBroadcast(const FlatCall& call, const void* input, void* output,
                                            Instant deadline, Path path) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const bool is_root = rank_ == call.root;
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(paths_.Deposit(call, input, is_root ? bytes : 0, deadline, bytes));
      CopyOne(output, is_root ? input : paths_.deposit(call.root), bytes);
      return absl::OkStatus();
    case Path::kDirect:
      paths_.ForShare(bytes, size() - 1, bytes * size(), [&](Slice share, Stores stores) {
        const char* const from = paths_.input(call.root) + share.begin;
        Copy(from, paths_.OutputsBut(from, share.begin), share.size, stores);
      });
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
        if (is_root) PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
        CopyOne(At(output, chunk.at * element),
                is_root ? At(input, chunk.at * element) : paths_.deposit(call.root),
                chunk.size * element, paths_.taken_out());
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunEagerBroadcast(const FlatCall& call, const void* input,
                                                 void* output, Instant deadline) {
  ArrivalBarrier& meeting = paths_.meeting();
  const int64_t bytes = call.count * SizeOf(call.type);
  const bool in_line = bytes <= static_cast<int64_t>(ArrivalLine::kDataBytes);
  if (rank_ == call.root) {
    CopyOne(in_line ? meeting.own_data() : space_.eager_slot(call.root, meeting.sequence() + 1),
            input, bytes);
  }
  COHORT_RETURN_IF_ERROR(meeting.Follow(call, call.root, deadline));
  const void* const data =
      in_line ? meeting.data(call.root) : space_.eager_slot(call.root, meeting.sequence());
  CopyOne(output, rank_ == call.root ? input : data, bytes);
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunAllGather(const FlatCall& call, const void* input, void* output,
                                            Instant deadline, Path path) {
  const int64_t bytes = call.count * SizeOf(call.type);
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(paths_.Deposit(call, input, bytes, deadline));
      CollectDeposits(call, input, output, {0, call.count});
      return absl::OkStatus();
    case Path::kDirect:
      paths_.ForOthers(bytes * (size() - 1), bytes * (size() + 1) * size(), [&](Stores stores) {
        Copy(input, paths_.OutputsBut(input, rank_ * bytes), bytes, stores);
      });
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
        PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
        CollectDeposits(call, input, output, chunk);
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunReduceScatter(const FlatCall& call, const void* input,
                                                void* output, Instant deadline, Path path) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(paths_.Deposit(call, input, bytes * size(), deadline));
      worker::Reduce(call.type, call.reduction, paths_.Deposits(rank_ * bytes),
                     absl::MakeConstSpan(&output, 1), call.count);
      return absl::OkStatus();
    case Path::kDirect:
      worker::Reduce(call.type, call.reduction, paths_.Inputs(rank_ * bytes),
                     absl::MakeConstSpan(&output, 1), call.count,
                     paths_.StoresOf(bytes * (size() + 1) * size()));
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
        PutChunkOfEachPart(call, input, chunk);
        COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
        void* const result = At(output, chunk.at * element);
        const char* const own = At(input, (rank_ * call.count + chunk.at) * element);
        worker::Reduce(call.type, call.reduction,
                       paths_.DepositsAnd(own, rank_ * chunk.size * element),
                       absl::MakeConstSpan(&result, 1), chunk.size, paths_.taken_out());
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunAllToAll(const FlatCall& call, const void* input, void* output,
                                           Instant deadline, Path path) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  // Stores the chunk of `rank`'s part for this rank, which is at `from`.
  const auto take = [&](int rank, const Chunk& chunk, const void* from, Stores stores) {
    void* const to = At(output, (rank * call.count + chunk.at) * element);
    if (rank == rank_) from = At(input, (rank_ * call.count + chunk.at) * element);
    Copy(from, absl::MakeConstSpan(&to, 1), chunk.size * element, stores);
  };
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(paths_.Deposit(call, input, bytes * size(), deadline));
      for (int step = 0; step < size(); ++step) {
        const int rank = (rank_ + step) % size();
        take(rank, {0, call.count}, paths_.deposit(rank) + rank_ * bytes, Stores::kCached);
      }
      return absl::OkStatus();
    case Path::kDirect:
      for (int step = 0; step < size(); ++step) {
        const int rank = (rank_ + step) % size();
        take(rank, {0, call.count}, paths_.input(rank) + rank_ * bytes,
             paths_.StoresOf(2 * bytes * size() * size()));
      }
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
        PutChunkOfEachPart(call, input, chunk);
        COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
        for (int step = 0; step < size(); ++step) {
          const int rank = (rank_ + step) % size();
          take(rank, chunk, paths_.deposit(rank) + rank_ * chunk.size * element,
               paths_.taken_out());
        }
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunGather(const FlatCall& call, const void* input, void* output,
                                         Instant deadline, Path path) {
  const int64_t bytes = call.count * SizeOf(call.type);
  const bool is_root = rank_ == call.root;
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(paths_.Deposit(call, input, bytes, deadline));
      if (is_root) CollectDeposits(call, input, output, {0, call.count});
      return absl::OkStatus();
    case Path::kDirect:
      CopyOne(paths_.output(call.root) + rank_ * bytes, input, bytes,
              paths_.StoresOf(2 * bytes * size()));
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
        if (!is_root) PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
        if (is_root) CollectDeposits(call, input, output, chunk);
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunScatter(const FlatCall& call, const void* input, void* output,
                                          Instant deadline, Path path) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const bool is_root = rank_ == call.root;
  switch (path) {
    case Path::kSmall:
      COHORT_RETURN_IF_ERROR(
          paths_.Deposit(call, input, is_root ? bytes * size() : 0, deadline, bytes * size()));
      CopyOne(output,
              is_root ? At(input, rank_ * bytes) : paths_.deposit(call.root) + rank_ * bytes,
              bytes);
      return absl::OkStatus();
    case Path::kDirect:
      CopyOne(output, paths_.input(call.root) + rank_ * bytes, bytes,
              paths_.StoresOf(2 * bytes * size()));
      return paths_.ArriveAndWait(call, Stage::kDone, deadline);
    case Path::kStaged:
      for (Chunk chunk = paths_.First(call); chunk.size > 0; chunk = paths_.Next(call, chunk)) {
        if (is_root) PutChunkOfEachPart(call, input, chunk);
        COHORT_RETURN_IF_ERROR(paths_.MeetForChunk(call, chunk, deadline));
        CopyOne(At(output, chunk.at * element),
                is_root ? At(input, (rank_ * call.count + chunk.at) * element)
                        : paths_.deposit(call.root) + rank_ * chunk.size * element,
                chunk.size * element, paths_.taken_out());
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                                        MessageChannel channel) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank_, size(), channel));
  return MailboxOf(channel).Exchange(transfers, deadline);
}

void HostCommunicator::Drain(Instant deadline) {
  paths_.meeting().Drain(deadline);
  mailbox_.Drain(deadline);
  control_mailbox_.Drain(deadline);
}

void HostCommunicator::Abort(absl::string_view cause) { waiter_.SetPoison(cause); }

}  // namespace cohort::worker
