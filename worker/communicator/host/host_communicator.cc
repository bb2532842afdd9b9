#include "worker/communicator/host/host_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/status_macros.h"
#include "worker/communicator/host/reduce_kernel.h"

namespace cohort::worker {
namespace {

// Up to here every rank reduces everything itself, and they meet once; above, each reduces its
// slice, and they meet again.
constexpr int64_t kOneShotBytes = int64_t{16} << 10;

// The stages of one operation's meetings.
constexpr int kFilled = 0;
constexpr int kReduced = 1;

const char* At(const void* from, int64_t bytes) { return static_cast<const char*>(from) + bytes; }
char* At(void* to, int64_t bytes) { return static_cast<char*>(to) + bytes; }

// Memory that is where it should be already is left alone.
void Copy(void* to, const void* from, int64_t bytes) {
  if (to != from && bytes > 0) std::memcpy(to, from, static_cast<size_t>(bytes));
}

Operation MakeOperation(Verb verb, int64_t count, DataType type, int root = 0,
                        const Reduction& reduction = {}) {
  Operation operation;
  operation.verb = verb;
  operation.count = count;
  operation.type = type;
  operation.reduction = reduction;
  operation.root = root;
  return operation;
}

absl::Status Done() { return absl::OkStatus(); }

}  // namespace

HostCommunicator::HostCommunicator(HostSpace space, int rank)
    : space_(std::move(space)), rank_(rank), meeting_(space_, rank) {}

const std::vector<const void*>& HostCommunicator::Buffers(int64_t offset) {
  buffers_.clear();
  for (int rank = 0; rank < size(); ++rank) buffers_.push_back(At(buffer(rank), offset));
  return buffers_;
}

absl::Status HostCommunicator::Exchange(const Operation& operation, int parts, Instant deadline,
                                        const std::function<void(const Chunk&)>& put,
                                        const std::function<absl::Status(const Chunk&)>& take) {
  const int64_t room =
      static_cast<int64_t>(HostSpace::kBufferBytes) / parts / SizeOf(operation.type);
  Chunk chunk;
  do {
    chunk.size = std::min(room, operation.count - chunk.at);
    // Whoever still reads the buffer before this one has not come to the meeting before this one.
    which_ = 1 - which_;
    put(chunk);
    if (absl::Status status = meeting_.Meet(operation, kFilled, deadline); !status.ok()) {
      // Ranks that called different things may be at different buffers; all have come, so none
      // reads.
      which_ = static_cast<int>(meeting_.turn() % 2);
      return status;
    }
    COHORT_RETURN_IF_ERROR(take(chunk));
    chunk.at += chunk.size;
  } while (chunk.at < operation.count);
  return absl::OkStatus();
}

absl::Status HostCommunicator::AllReduce(const void* input, void* output, int64_t count,
                                         DataType type, const Reduction& reduction,
                                         Instant deadline) {
  const Operation operation = MakeOperation(Verb::kAllReduce, count, type, 0, reduction);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, 1, deadline,
      [&](const Chunk& chunk) {
        Copy(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
      },
      [&](const Chunk& chunk) -> absl::Status {
        char* const result = At(output, chunk.at * element);
        if (chunk.size * element <= kOneShotBytes) {
          void* const whole = result;
          worker::Reduce(type, reduction, Buffers(0), absl::MakeConstSpan(&whole, 1), chunk.size);
          return Done();
        }
        const auto first = [&](int rank) { return chunk.size * rank / size() * element; };
        // Nobody else reads this rank's slice of any buffer, so the result may lie in its own.
        void* const slices[] = {At(buffer(rank_), first(rank_)), At(result, first(rank_))};
        worker::Reduce(type, reduction, Buffers(first(rank_)), slices,
                       (first(rank_ + 1) - first(rank_)) / element);
        COHORT_RETURN_IF_ERROR(meeting_.Meet(operation, kReduced, deadline));
        for (int step = 1; step < size(); ++step) {
          const int owner = (rank_ + step) % size();
          Copy(At(result, first(owner)), At(buffer(owner), first(owner)),
               first(owner + 1) - first(owner));
        }
        return Done();
      });
}

absl::Status HostCommunicator::Reduce(const void* input, void* output, int64_t count, DataType type,
                                      const Reduction& reduction, int root, Instant deadline) {
  const Operation operation = MakeOperation(Verb::kReduce, count, type, root, reduction);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, 1, deadline,
      [&](const Chunk& chunk) {
        Copy(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
      },
      [&](const Chunk& chunk) {
        if (rank_ != root) return Done();
        void* const result = At(output, chunk.at * element);
        worker::Reduce(type, reduction, Buffers(0), absl::MakeConstSpan(&result, 1), chunk.size);
        return Done();
      });
}

absl::Status HostCommunicator::Broadcast(const void* input, void* output, int64_t count,
                                         DataType type, int root, Instant deadline) {
  const Operation operation = MakeOperation(Verb::kBroadcast, count, type, root);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, 1, deadline,
      [&](const Chunk& chunk) {
        if (rank_ != root) return;
        Copy(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
      },
      [&](const Chunk& chunk) {
        const void* const from = rank_ == root ? At(input, chunk.at * element) : buffer(root);
        Copy(At(output, chunk.at * element), from, chunk.size * element);
        return Done();
      });
}

absl::Status HostCommunicator::AllGather(const void* input, void* output, int64_t count,
                                         DataType type, Instant deadline) {
  const Operation operation = MakeOperation(Verb::kAllGather, count, type);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, 1, deadline,
      [&](const Chunk& chunk) {
        Copy(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
      },
      [&](const Chunk& chunk) {
        for (int step = 0; step < size(); ++step) {
          const int rank = (rank_ + step) % size();
          const void* const from = step == 0 ? At(input, chunk.at * element) : buffer(rank);
          Copy(At(output, (rank * count + chunk.at) * element), from, chunk.size * element);
        }
        return Done();
      });
}

absl::Status HostCommunicator::ReduceScatter(const void* input, void* output, int64_t count,
                                             DataType type, const Reduction& reduction,
                                             Instant deadline) {
  const Operation operation = MakeOperation(Verb::kReduceScatter, count, type, 0, reduction);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, size(), deadline,
      [&](const Chunk& chunk) {
        for (int rank = 0; rank < size(); ++rank) {
          Copy(At(buffer(rank_), rank * chunk.size * element),
               At(input, (rank * count + chunk.at) * element), chunk.size * element);
        }
      },
      [&](const Chunk& chunk) {
        void* const result = At(output, chunk.at * element);
        worker::Reduce(type, reduction, Buffers(rank_ * chunk.size * element),
                       absl::MakeConstSpan(&result, 1), chunk.size);
        return Done();
      });
}

absl::Status HostCommunicator::AllToAll(const void* input, void* output, int64_t count,
                                        DataType type, Instant deadline) {
  const Operation operation = MakeOperation(Verb::kAllToAll, count, type);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, size(), deadline,
      [&](const Chunk& chunk) {
        for (int rank = 0; rank < size(); ++rank) {
          if (rank == rank_) continue;
          Copy(At(buffer(rank_), rank * chunk.size * element),
               At(input, (rank * count + chunk.at) * element), chunk.size * element);
        }
      },
      [&](const Chunk& chunk) {
        for (int step = 0; step < size(); ++step) {
          const int rank = (rank_ + step) % size();
          const void* const from = step == 0 ? At(input, (rank_ * count + chunk.at) * element)
                                             : At(buffer(rank), rank_ * chunk.size * element);
          Copy(At(output, (rank * count + chunk.at) * element), from, chunk.size * element);
        }
        return Done();
      });
}

absl::Status HostCommunicator::Gather(const void* input, void* output, int64_t count, DataType type,
                                      int root, Instant deadline) {
  const Operation operation = MakeOperation(Verb::kGather, count, type, root);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, 1, deadline,
      [&](const Chunk& chunk) {
        if (rank_ == root) return;
        Copy(buffer(rank_), At(input, chunk.at * element), chunk.size * element);
      },
      [&](const Chunk& chunk) {
        if (rank_ != root) return Done();
        for (int rank = 0; rank < size(); ++rank) {
          const void* const from = rank == rank_ ? At(input, chunk.at * element) : buffer(rank);
          Copy(At(output, (rank * count + chunk.at) * element), from, chunk.size * element);
        }
        return Done();
      });
}

absl::Status HostCommunicator::Scatter(const void* input, void* output, int64_t count,
                                       DataType type, int root, Instant deadline) {
  const Operation operation = MakeOperation(Verb::kScatter, count, type, root);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank_, size(), input, output));
  const int64_t element = SizeOf(type);
  return Exchange(
      operation, size(), deadline,
      [&](const Chunk& chunk) {
        if (rank_ != root) return;
        for (int rank = 0; rank < size(); ++rank) {
          if (rank == rank_) continue;
          Copy(At(buffer(rank_), rank * chunk.size * element),
               At(input, (rank * count + chunk.at) * element), chunk.size * element);
        }
      },
      [&](const Chunk& chunk) {
        const void* const from = rank_ == root ? At(input, (rank_ * count + chunk.at) * element)
                                               : At(buffer(root), rank_ * chunk.size * element);
        Copy(At(output, chunk.at * element), from, chunk.size * element);
        return Done();
      });
}

absl::Status HostCommunicator::Barrier(Instant deadline) {
  return meeting_.Meet(MakeOperation(Verb::kBarrier, 0, DataType::kU8), kFilled, deadline);
}

void HostCommunicator::Abort(const absl::Status& cause) {
  meeting_.Abort(absl::StrCat("rank ", rank_, " aborted: ", cause.message()));
}

}  // namespace cohort::worker
