// One file, though long: each collective chooses here among the algorithms for its size.
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
      algorithms_(space_, heaps_, names_, waiter_, rank, memory.stream_from),
      mailbox_(space_, heaps_, waiter_, rank),
      control_mailbox_(space_, heaps_, waiter_, rank, MessageChannel::kControl) {}

absl::Status HostCommunicator::Run(const FlatCall& call, const void* input, void* output,
                                   Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckArguments(call, rank_, size(), input, output));
  COHORT_RETURN_IF_ERROR(algorithms_.barrier().CheckLeft());
  if (call.collective == Collective::kBarrier)
    return algorithms_.ArriveAndWait(call, Stage::kPut, deadline);
  if (call.collective == Collective::kBroadcast && call.eager &&
      call.count * SizeOf(call.type) <= space_.eager_broadcast_bytes()) {
    return RunEagerBroadcast(call, input, output, deadline);
  }
  Algorithm algorithm = Algorithm::kSmall;
  if (!algorithms_.IsSmall(call)) {
    COHORT_ASSIGN_OR_RETURN(algorithm, algorithms_.ChooseLarge(call, input, output, deadline));
  }
  switch (call.collective) {
    case Collective::kAllReduce:
      return RunAllReduce(call, input, output, deadline, algorithm);
    case Collective::kReduce:
      return RunReduce(call, input, output, deadline, algorithm);
    case Collective::kBroadcast:
      return RunBroadcast(call, input, output, deadline, algorithm);
    case Collective::kAllGather:
      return RunAllGather(call, input, output, deadline, algorithm);
    case Collective::kReduceScatter:
      return RunReduceScatter(call, input, output, deadline, algorithm);
    case Collective::kAllToAll:
      return RunAllToAll(call, input, output, deadline, algorithm);
    case Collective::kGather:
      return RunGather(call, input, output, deadline, algorithm);
    default:
      return RunScatter(call, input, output, deadline, algorithm);
  }
}

void HostCommunicator::PutChunk(const FlatCall& call, const void* input, const Chunk& chunk) {
  const int64_t element = SizeOf(call.type);
  algorithms_.Put(algorithms_.buffer(rank_), At(input, chunk.at * element), chunk.size * element);
}

void HostCommunicator::PutChunkOfEachPart(const FlatCall& call, const void* input,
                                          const Chunk& chunk) {
  const int64_t element = SizeOf(call.type);
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    algorithms_.Put(algorithms_.buffer(rank_) + rank * chunk.size * element,
                    At(input, (rank * call.count + chunk.at) * element), chunk.size * element);
  }
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void HostCommunicator::ReduceDeposits(const FlatCall& call,
                                                                          void* output,
                                                                          const Chunk& chunk) {
  void* const result = At(output, chunk.at * SizeOf(call.type));
  worker::Reduce(call.type, call.reduction, algorithms_.Deposits(), absl::MakeConstSpan(&result, 1),
                 chunk.size, algorithms_.taken_out());
}

ABSL_ATTRIBUTE_ALWAYS_INLINE inline void HostCommunicator::CollectDeposits(const FlatCall& call,
                                                                           const void* input,
                                                                           void* output,
                                                                           const Chunk& chunk) {
  const int64_t element = SizeOf(call.type);
  for (int step = 0; step < size(); ++step) {
    const int rank = (rank_ + step) % size();
    CopyOne(At(output, (rank * call.count + chunk.at) * element),
            step == 0 ? At(input, chunk.at * element) : algorithms_.deposit(rank),
            chunk.size * element, algorithms_.taken_out());
  }
}

absl::Status HostCommunicator::RunAllReduce(const FlatCall& call, const void* input, void* output,
                                            Instant deadline, Algorithm algorithm) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(algorithms_.Deposit(call, input, bytes, deadline));
      worker::Reduce(call.type, call.reduction, algorithms_.Deposits(),
                     absl::MakeConstSpan(&output, 1), call.count);
      return absl::OkStatus();
    case Algorithm::kDirect:
      algorithms_.ForShare(bytes, size() - 1, 2 * bytes * size(), [&](Slice share, Stores stores) {
        worker::Reduce(call.type, call.reduction, algorithms_.Inputs(share.begin),
                       algorithms_.Outputs(share.begin), share.size / element, stores);
      });
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      break;
  }
  return StagedAllReduce(call, input, output, deadline);
}

absl::Status HostCommunicator::StagedAllReduce(const FlatCall& call, const void* input,
                                               void* output, Instant deadline) {
  const int64_t element = SizeOf(call.type);
  for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
       chunk = algorithms_.Next(call, chunk)) {
    const int64_t bytes = chunk.size * element;
    if (bytes <= kOneShotBytes) {
      PutChunk(call, input, chunk);
      COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
      ReduceDeposits(call, output, chunk);
      continue;
    }
    const char* const from = At(input, chunk.at * element);
    char* const to = At(output, chunk.at * element);
    char* const buffer = algorithms_.buffer(rank_);
    // No other rank reads this rank's slice of the input.
    const Slice own = algorithms_.SliceOf(rank_, bytes);
    const int64_t end = own.begin + own.size;
    algorithms_.Put(buffer, from, own.begin);
    algorithms_.Put(buffer + end, from + end, bytes - end);
    COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
    // The buffer of this rank's slice is free for the result.
    void* const results[] = {buffer + own.begin, to + own.begin};
    worker::Reduce(call.type, call.reduction, algorithms_.DepositsAnd(from + own.begin, own.begin),
                   results, own.size / element, algorithms_.put_stores());
    COHORT_RETURN_IF_ERROR(algorithms_.ArriveAndWait(call, Stage::kReduced, deadline));
    for (int step = 1; step < size(); ++step) {
      const int owner = (rank_ + step) % size();
      const Slice slice = algorithms_.SliceOf(owner, bytes);
      CopyOne(to + slice.begin, algorithms_.buffer(owner) + slice.begin, slice.size,
              algorithms_.taken_out());
    }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunReduce(const FlatCall& call, const void* input, void* output,
                                         Instant deadline, Algorithm algorithm) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(algorithms_.Deposit(call, input, bytes, deadline));
      if (rank_ == call.root) ReduceDeposits(call, output, {0, call.count});
      return absl::OkStatus();
    case Algorithm::kDirect:
      // 0 copies: a rank reads all inputs to store one output, so the time says little about
      // stores.
      algorithms_.ForShare(bytes, 0, bytes * (size() + 1), [&](Slice share, Stores stores) {
        void* const result = algorithms_.output(call.root) + share.begin;
        worker::Reduce(call.type, call.reduction, algorithms_.Inputs(share.begin),
                       absl::MakeConstSpan(&result, 1), share.size / element, stores);
      });
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
           chunk = algorithms_.Next(call, chunk)) {
        PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
        if (rank_ == call.root) ReduceDeposits(call, output, chunk);
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunBroadcast(const FlatCall& call, const void* input, void* output,
                                            Instant deadline, Algorithm algorithm) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const bool is_root = rank_ == call.root;
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(
          algorithms_.Deposit(call, input, is_root ? bytes : 0, deadline, bytes));
      CopyOne(output, is_root ? input : algorithms_.deposit(call.root), bytes);
      return absl::OkStatus();
    case Algorithm::kDirect:
      algorithms_.ForShare(bytes, size() - 1, bytes * size(), [&](Slice share, Stores stores) {
        const char* const from = algorithms_.input(call.root) + share.begin;
        Copy(from, algorithms_.OutputsBut(from, share.begin), share.size, stores);
      });
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
           chunk = algorithms_.Next(call, chunk)) {
        if (is_root) PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
        CopyOne(At(output, chunk.at * element),
                is_root ? At(input, chunk.at * element) : algorithms_.deposit(call.root),
                chunk.size * element, algorithms_.taken_out());
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunEagerBroadcast(const FlatCall& call, const void* input,
                                                 void* output, Instant deadline) {
  ArrivalBarrier& barrier = algorithms_.barrier();
  const int64_t bytes = call.count * SizeOf(call.type);
  const bool in_line = bytes <= static_cast<int64_t>(ArrivalLine::kDataBytes);
  if (rank_ == call.root) {
    CopyOne(in_line ? barrier.own_data() : space_.eager_slot(call.root, barrier.sequence() + 1),
            input, bytes);
  }
  COHORT_RETURN_IF_ERROR(barrier.Follow(call, call.root, deadline));
  const void* const data =
      in_line ? barrier.data(call.root) : space_.eager_slot(call.root, barrier.sequence());
  CopyOne(output, rank_ == call.root ? input : data, bytes);
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunAllGather(const FlatCall& call, const void* input, void* output,
                                            Instant deadline, Algorithm algorithm) {
  const int64_t bytes = call.count * SizeOf(call.type);
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(algorithms_.Deposit(call, input, bytes, deadline));
      CollectDeposits(call, input, output, {0, call.count});
      return absl::OkStatus();
    case Algorithm::kDirect:
      algorithms_.ForOthers(
          bytes * (size() - 1), bytes * (size() + 1) * size(), [&](Stores stores) {
            Copy(input, algorithms_.OutputsBut(input, rank_ * bytes), bytes, stores);
          });
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
           chunk = algorithms_.Next(call, chunk)) {
        PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
        CollectDeposits(call, input, output, chunk);
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunReduceScatter(const FlatCall& call, const void* input,
                                                void* output, Instant deadline,
                                                Algorithm algorithm) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(algorithms_.Deposit(call, input, bytes * size(), deadline));
      worker::Reduce(call.type, call.reduction, algorithms_.Deposits(rank_ * bytes),
                     absl::MakeConstSpan(&output, 1), call.count);
      return absl::OkStatus();
    case Algorithm::kDirect:
      worker::Reduce(call.type, call.reduction, algorithms_.Inputs(rank_ * bytes),
                     absl::MakeConstSpan(&output, 1), call.count,
                     algorithms_.StoresOf(bytes * (size() + 1) * size()));
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
           chunk = algorithms_.Next(call, chunk)) {
        PutChunkOfEachPart(call, input, chunk);
        COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
        void* const result = At(output, chunk.at * element);
        const char* const own = At(input, (rank_ * call.count + chunk.at) * element);
        worker::Reduce(call.type, call.reduction,
                       algorithms_.DepositsAnd(own, rank_ * chunk.size * element),
                       absl::MakeConstSpan(&result, 1), chunk.size, algorithms_.taken_out());
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunAllToAll(const FlatCall& call, const void* input, void* output,
                                           Instant deadline, Algorithm algorithm) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  // Stores the chunk of `rank`'s part for this rank, which is at `from`.
  const auto take = [&](int rank, const Chunk& chunk, const void* from, Stores stores) {
    void* const to = At(output, (rank * call.count + chunk.at) * element);
    if (rank == rank_) from = At(input, (rank_ * call.count + chunk.at) * element);
    Copy(from, absl::MakeConstSpan(&to, 1), chunk.size * element, stores);
  };
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(algorithms_.Deposit(call, input, bytes * size(), deadline));
      for (int step = 0; step < size(); ++step) {
        const int rank = (rank_ + step) % size();
        take(rank, {0, call.count}, algorithms_.deposit(rank) + rank_ * bytes, Stores::kCached);
      }
      return absl::OkStatus();
    case Algorithm::kDirect:
      for (int step = 0; step < size(); ++step) {
        const int rank = (rank_ + step) % size();
        take(rank, {0, call.count}, algorithms_.input(rank) + rank_ * bytes,
             algorithms_.StoresOf(2 * bytes * size() * size()));
      }
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
           chunk = algorithms_.Next(call, chunk)) {
        PutChunkOfEachPart(call, input, chunk);
        COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
        for (int step = 0; step < size(); ++step) {
          const int rank = (rank_ + step) % size();
          take(rank, chunk, algorithms_.deposit(rank) + rank_ * chunk.size * element,
               algorithms_.taken_out());
        }
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunGather(const FlatCall& call, const void* input, void* output,
                                         Instant deadline, Algorithm algorithm) {
  const int64_t bytes = call.count * SizeOf(call.type);
  const bool is_root = rank_ == call.root;
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(algorithms_.Deposit(call, input, bytes, deadline));
      if (is_root) CollectDeposits(call, input, output, {0, call.count});
      return absl::OkStatus();
    case Algorithm::kDirect:
      CopyOne(algorithms_.output(call.root) + rank_ * bytes, input, bytes,
              algorithms_.StoresOf(2 * bytes * size()));
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
           chunk = algorithms_.Next(call, chunk)) {
        if (!is_root) PutChunk(call, input, chunk);
        COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
        if (is_root) CollectDeposits(call, input, output, chunk);
      }
  }
  return absl::OkStatus();
}

absl::Status HostCommunicator::RunScatter(const FlatCall& call, const void* input, void* output,
                                          Instant deadline, Algorithm algorithm) {
  const int64_t element = SizeOf(call.type);
  const int64_t bytes = call.count * element;
  const bool is_root = rank_ == call.root;
  switch (algorithm) {
    case Algorithm::kSmall:
      COHORT_RETURN_IF_ERROR(
          algorithms_.Deposit(call, input, is_root ? bytes * size() : 0, deadline, bytes * size()));
      CopyOne(output,
              is_root ? At(input, rank_ * bytes) : algorithms_.deposit(call.root) + rank_ * bytes,
              bytes);
      return absl::OkStatus();
    case Algorithm::kDirect:
      CopyOne(output, algorithms_.input(call.root) + rank_ * bytes, bytes,
              algorithms_.StoresOf(2 * bytes * size()));
      return algorithms_.ArriveAndWait(call, Stage::kDone, deadline);
    case Algorithm::kStaged:
      for (Chunk chunk = algorithms_.First(call); chunk.size > 0;
           chunk = algorithms_.Next(call, chunk)) {
        if (is_root) PutChunkOfEachPart(call, input, chunk);
        COHORT_RETURN_IF_ERROR(algorithms_.ArriveForChunk(call, chunk, deadline));
        CopyOne(At(output, chunk.at * element),
                is_root ? At(input, (rank_ * call.count + chunk.at) * element)
                        : algorithms_.deposit(call.root) + rank_ * chunk.size * element,
                chunk.size * element, algorithms_.taken_out());
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
  algorithms_.barrier().Drain(deadline);
  mailbox_.Drain(deadline);
  control_mailbox_.Drain(deadline);
}

void HostCommunicator::Abort(absl::string_view cause) { waiter_.SetPoison(cause); }

void HostCommunicator::NoteLeft(int rank, absl::string_view cause) {
  if (rank < 0 || rank >= size()) return;  // no rank of this group: a faulty coordinator or daemon
  waiter_.SetLeft(rank, names_[static_cast<size_t>(rank)], cause);
}

}  // namespace cohort::worker
