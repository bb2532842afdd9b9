#include "worker/communicator/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

const char* At(const void* from, int64_t bytes) { return static_cast<const char*>(from) + bytes; }
char* At(void* to, int64_t bytes) { return static_cast<char*>(to) + bytes; }

// What ranks send each other to agree.
struct Called {
  int64_t count;
  double scale;
  int32_t root;
  uint8_t verb;
  uint8_t type;
  uint8_t op;
  uint8_t unused;
  uint32_t tag;
  uint32_t unused_too;
};

Operation OperationOf(const Called& called) {
  Operation operation;
  operation.verb = static_cast<Verb>(called.verb);
  operation.count = called.count;
  operation.type = static_cast<DataType>(called.type);
  operation.reduction = {static_cast<ReduceOp>(called.op), called.scale};
  operation.root = called.root;
  return operation;
}

// Of partial results.
Reduction Then(const Reduction& reduction) {
  return reduction.op == ReduceOp::kPreMulSum ? Reduction{ReduceOp::kSum} : reduction;
}

// Of what ranks of other hosts must do. Whoever waits in vain for them says so before its
// neighbours, who wait for it, take it for the culprit.
Instant Sooner(Instant deadline) {
  constexpr absl::Duration kMost = absl::Seconds(1);
  const Instant now = Clock::Steady().Now();
  if (deadline <= now) return deadline;
  return deadline - std::min((deadline - now) / 8, kMost);
}

// Of what neighbours must do once this rank has heard of all: one of them may still wait for
// another host's word, and has to be the first to say so.
Instant Later(Instant deadline) {
  constexpr absl::Duration kMost = absl::Milliseconds(100);
  const Instant now = Clock::Steady().Now();
  if (deadline <= now) return deadline;
  return deadline + std::min((deadline - now) / 8, kMost);
}

}  // namespace

HierarchicalCommunicator::HierarchicalCommunicator(Levels levels, Hosts hosts)
    : levels_(std::move(levels)),
      hosts_(std::move(hosts)),
      places_(PlacesOf(hosts_)),
      own_(places_[static_cast<size_t>(levels_.mesh->rank())]),
      even_(std::all_of(hosts_.begin(), hosts_.end(), [this](const std::vector<int>& ranks) {
        return ranks.size() == hosts_[0].size();
      })) {}

std::vector<HierarchicalCommunicator::Place> HierarchicalCommunicator::PlacesOf(
    const Hosts& hosts) {
  size_t ranks = 0;
  for (const std::vector<int>& host : hosts) ranks += host.size();
  std::vector<Place> places(ranks);
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (size_t index = 0; index < hosts[host].size(); ++index) {
      places[static_cast<size_t>(hosts[host][index])] = {static_cast<int>(host),
                                                         static_cast<int>(index)};
    }
  }
  return places;
}

absl::Status HierarchicalCommunicator::Agree(const Operation& operation, Instant deadline) {
  const Called own = {operation.count,
                      operation.reduction.scale,
                      operation.root,
                      static_cast<uint8_t>(operation.verb),
                      static_cast<uint8_t>(operation.type),
                      static_cast<uint8_t>(operation.reduction.op),
                      0,
                      tag(),
                      0};
  levels_.mesh->set_tag(0);
  std::vector<Called> all(static_cast<size_t>(size()));
  COHORT_RETURN_IF_ERROR(
      levels_.mesh->AllGather(&own, all.data(), sizeof(own), DataType::kU8, deadline));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (std::memcmp(&all[rank], &all[0], sizeof(own)) == 0) continue;
    return MismatchError(Describe(OperationOf(all[0])), static_cast<int>(rank),
                         Describe(OperationOf(all[rank])));
  }
  return absl::OkStatus();
}

absl::Status HierarchicalCommunicator::Checked(absl::Status status) {
  if (!status.ok()) Abort(status.message());
  return status;
}

absl::Status HierarchicalCommunicator::AllReduce(const void* input, void* output, int64_t count,
                                                 DataType type, const Reduction& reduction,
                                                 Instant deadline) {
  const int64_t element = SizeOf(type);
  if (count < kLarge / element || reduction.op == ReduceOp::kAvg) {
    return Mesh().AllReduce(input, output, count, type, reduction, deadline);
  }
  const Operation operation = MakeOperation(Verb::kAllReduce, count, type, tag(), 0, reduction);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank(), size(), input, output));
  COHORT_RETURN_IF_ERROR(Agree(operation, deadline));
  const Instant far = Sooner(deadline);
  return Checked([&]() -> absl::Status {
    if (!even_) {
      COHORT_RETURN_IF_ERROR(
          levels_.inside->Reduce(input, output, count, type, reduction, 0, Later(deadline)));
      if (own_.index == 0) {
        COHORT_RETURN_IF_ERROR(
            levels_.across->AllReduce(output, output, count, type, Then(reduction), far));
      }
      return levels_.inside->Broadcast(output, output, count, type, 0, Later(deadline));
    }
    const int64_t part = count / levels_.inside->size();
    const int64_t rest = part * levels_.inside->size();
    char* const own = At(output, own_.index * part * element);
    COHORT_RETURN_IF_ERROR(
        levels_.inside->ReduceScatter(input, own, part, type, reduction, Later(deadline)));
    COHORT_RETURN_IF_ERROR(levels_.across->AllReduce(own, own, part, type, Then(reduction), far));
    COHORT_RETURN_IF_ERROR(levels_.mesh->AllReduce(
        At(input, rest * element), At(output, rest * element), count - rest, type, reduction, far));
    return levels_.inside->AllGather(own, output, part, type, Later(deadline));
  }());
}

absl::Status HierarchicalCommunicator::Broadcast(const void* input, void* output, int64_t count,
                                                 DataType type, int root, Instant deadline) {
  const int64_t element = SizeOf(type);
  if (count < kLarge / element || root < 0 || root >= size()) {
    return Mesh().Broadcast(input, output, count, type, root, deadline);
  }
  const Operation operation = MakeOperation(Verb::kBroadcast, count, type, tag(), root);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank(), size(), input, output));
  COHORT_RETURN_IF_ERROR(Agree(operation, deadline));
  const Instant far = Sooner(deadline);
  const Place from = places_[static_cast<size_t>(root)];
  const bool at_root = own_.host == from.host;
  return Checked([&]() -> absl::Status {
    if (!even_) {
      if (at_root) {
        COHORT_RETURN_IF_ERROR(
            levels_.inside->Broadcast(input, output, count, type, from.index, Later(deadline)));
      }
      if (own_.index == 0) {
        COHORT_RETURN_IF_ERROR(
            levels_.across->Broadcast(output, output, count, type, from.host, far));
      }
      if (at_root) return absl::OkStatus();
      return levels_.inside->Broadcast(output, output, count, type, 0, Later(deadline));
    }
    const int64_t part = count / levels_.inside->size();
    const int64_t rest = part * levels_.inside->size();
    char* const own = At(output, own_.index * part * element);
    if (at_root) {
      COHORT_RETURN_IF_ERROR(
          levels_.inside->Scatter(input, own, part, type, from.index, Later(deadline)));
    }
    COHORT_RETURN_IF_ERROR(levels_.across->Broadcast(own, own, part, type, from.host, far));
    COHORT_RETURN_IF_ERROR(
        levels_.mesh->Broadcast(rank() == root ? At(input, rest * element) : nullptr,
                                At(output, rest * element), count - rest, type, root, far));
    return levels_.inside->AllGather(own, output, part, type, Later(deadline));
  }());
}

absl::Status HierarchicalCommunicator::AllGather(const void* input, void* output, int64_t count,
                                                 DataType type, Instant deadline) {
  if (!even_ || count < kLarge / SizeOf(type) / size()) {
    return Mesh().AllGather(input, output, count, type, deadline);
  }
  const Operation operation = MakeOperation(Verb::kAllGather, count, type, tag());
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank(), size(), input, output));
  COHORT_RETURN_IF_ERROR(Agree(operation, deadline));
  const Instant far = Sooner(deadline);
  return Checked([&]() -> absl::Status {
    const int64_t bytes = count * SizeOf(type);
    const int64_t column = levels_.across->size() * bytes;
    // Of each place on a host: that of all hosts.
    scratch_.resize(static_cast<size_t>(size() * bytes));
    char* const own = scratch_.data() + own_.index * column;
    COHORT_RETURN_IF_ERROR(levels_.across->AllGather(input, own, count, type, far));
    COHORT_RETURN_IF_ERROR(levels_.inside->AllGather(
        own, scratch_.data(), count * levels_.across->size(), type, Later(deadline)));
    for (int rank = 0; rank < size(); ++rank) {
      const Place& place = places_[static_cast<size_t>(rank)];
      std::memcpy(At(output, rank * bytes),
                  scratch_.data() + place.index * column + place.host * bytes,
                  static_cast<size_t>(bytes));
    }
    return absl::OkStatus();
  }());
}

absl::Status HierarchicalCommunicator::ReduceScatter(const void* input, void* output, int64_t count,
                                                     DataType type, const Reduction& reduction,
                                                     Instant deadline) {
  if (!even_ || count < kLarge / SizeOf(type) / size() || reduction.op == ReduceOp::kAvg) {
    return Mesh().ReduceScatter(input, output, count, type, reduction, deadline);
  }
  const Operation operation = MakeOperation(Verb::kReduceScatter, count, type, tag(), 0, reduction);
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank(), size(), input, output));
  COHORT_RETURN_IF_ERROR(Agree(operation, deadline));
  const Instant far = Sooner(deadline);
  return Checked([&]() -> absl::Status {
    const int64_t bytes = count * SizeOf(type);
    const int64_t column = levels_.across->size() * bytes;
    scratch_.resize(static_cast<size_t>(size() * bytes));
    for (int rank = 0; rank < size(); ++rank) {
      const Place& place = places_[static_cast<size_t>(rank)];
      std::memcpy(scratch_.data() + place.index * column + place.host * bytes,
                  At(input, rank * bytes), static_cast<size_t>(bytes));
    }
    char* const own = scratch_.data() + own_.index * column;
    COHORT_RETURN_IF_ERROR(levels_.inside->ReduceScatter(
        scratch_.data(), own, count * levels_.across->size(), type, reduction, Later(deadline)));
    return levels_.across->ReduceScatter(own, output, count, type, Then(reduction), far);
  }());
}

absl::Status HierarchicalCommunicator::Reduce(const void* input, void* output, int64_t count,
                                              DataType type, const Reduction& reduction, int root,
                                              Instant deadline) {
  return Mesh().Reduce(input, output, count, type, reduction, root, deadline);
}

absl::Status HierarchicalCommunicator::AllToAll(const void* input, void* output, int64_t count,
                                                DataType type, Instant deadline) {
  return Mesh().AllToAll(input, output, count, type, deadline);
}

absl::Status HierarchicalCommunicator::Gather(const void* input, void* output, int64_t count,
                                              DataType type, int root, Instant deadline) {
  return Mesh().Gather(input, output, count, type, root, deadline);
}

absl::Status HierarchicalCommunicator::Scatter(const void* input, void* output, int64_t count,
                                               DataType type, int root, Instant deadline) {
  return Mesh().Scatter(input, output, count, type, root, deadline);
}

absl::Status HierarchicalCommunicator::Exchange(absl::Span<const Transfer> transfers,
                                                Instant deadline) {
  return Mesh().Exchange(transfers, deadline);
}

absl::Status HierarchicalCommunicator::Barrier(Instant deadline) {
  return Mesh().Barrier(deadline);
}

void HierarchicalCommunicator::Abort(absl::string_view cause) {
  levels_.mesh->Abort(cause);
  levels_.inside->Abort(cause);
  if (levels_.across != nullptr) levels_.across->Abort(cause);
}

}  // namespace cohort::worker
