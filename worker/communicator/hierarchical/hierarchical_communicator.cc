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

// The reduction of the hosts' partial results.
Reduction Then(const Reduction& reduction) {
  return reduction.op == ReduceOp::kPreMulSum ? Reduction{ReduceOp::kSum} : reduction;
}

// The deadline of steps between hosts, a little before `deadline`. A rank that waits in vain for
// another host then reports it before its neighbours, which wait for this rank, blame it.
Instant Sooner(Instant deadline) {
  constexpr absl::Duration kMost = absl::Seconds(1);
  const Instant now = Clock::Steady().Now();
  if (deadline <= now) return deadline;
  return deadline - std::min((deadline - now) / 8, kMost);
}

// The deadline of steps inside this host, a little after `deadline`. A neighbour may still wait for
// another host, and has to report that first.
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
      positions_(PositionsOf(hosts_)),
      own_(positions_[static_cast<size_t>(levels_.mesh->rank())]),
      even_(std::all_of(hosts_.begin(), hosts_.end(), [this](const std::vector<int>& ranks) {
        return ranks.size() == hosts_[0].size();
      })) {}

std::vector<HierarchicalCommunicator::HostPosition> HierarchicalCommunicator::PositionsOf(
    const Hosts& hosts) {
  size_t ranks = 0;
  for (const std::vector<int>& host : hosts) ranks += host.size();
  std::vector<HostPosition> positions(ranks);
  for (size_t host = 0; host < hosts.size(); ++host) {
    for (size_t index = 0; index < hosts[host].size(); ++index) {
      positions[static_cast<size_t>(hosts[host][index])] = {static_cast<int>(host),
                                                            static_cast<int>(index)};
    }
  }
  return positions;
}

absl::Status HierarchicalCommunicator::Agree(const FlatCall& call, Instant deadline) {
  const CollectiveKey own = KeyOf(call);
  std::vector<CollectiveKey> all(static_cast<size_t>(size()));
  COHORT_RETURN_IF_ERROR(
      levels_.mesh->AllGather(&own, all.data(), sizeof(own), DataType::kU8, deadline));
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    return MismatchError(Describe(all[0]), static_cast<int>(rank), Describe(all[rank]));
  }
  return absl::OkStatus();
}

absl::Status HierarchicalCommunicator::Checked(absl::Status status) {
  if (!status.ok()) Abort(status.message());
  return status;
}

bool HierarchicalCommunicator::TakesLevels(const FlatCall& call) const {
  const int64_t large = kLarge / SizeOf(call.type);
  const bool averages = Reduces(call.collective) && call.reduction.op == ReduceOp::kAvg;
  switch (call.collective) {
    case Collective::kAllReduce:
      return call.count >= large && !averages;
    case Collective::kBroadcast:
      return call.count >= large;
    case Collective::kAllGather:
      return even_ && call.count >= large / size();
    case Collective::kReduceScatter:
      return even_ && call.count >= large / size() && !averages;
    default:
      return false;
  }
}

absl::Status HierarchicalCommunicator::Run(const FlatCall& call, const void* input, void* output,
                                           Instant deadline) {
  if (!TakesLevels(call)) return levels_.mesh->Run(call, input, output, deadline);
  COHORT_RETURN_IF_ERROR(CheckArguments(call, rank(), size(), input, output));
  COHORT_RETURN_IF_ERROR(Agree(call, deadline));
  switch (call.collective) {
    case Collective::kAllReduce:
      return Checked(AllReduceInLevels(call, input, output, deadline));
    case Collective::kBroadcast:
      return Checked(BroadcastInLevels(call, input, output, deadline));
    case Collective::kAllGather:
      return Checked(AllGatherInLevels(call, input, output, deadline));
    default:
      return Checked(ReduceScatterInLevels(call, input, output, deadline));
  }
}

absl::Status HierarchicalCommunicator::AllReduceInLevels(const FlatCall& call, const void* input,
                                                         void* output, Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const Instant far = Sooner(deadline);
  if (!even_) {
    COHORT_RETURN_IF_ERROR(levels_.inside->Reduce(input, output, call.count, call.type,
                                                  call.reduction, 0, Later(deadline)));
    if (own_.index == 0) {
      COHORT_RETURN_IF_ERROR(levels_.across->AllReduce(output, output, call.count, call.type,
                                                       Then(call.reduction), far));
    }
    return levels_.inside->Broadcast(output, output, call.count, call.type, 0, Later(deadline));
  }
  const int64_t part = call.count / levels_.inside->size();
  const int64_t rest = part * levels_.inside->size();
  char* const own = At(output, own_.index * part * element);
  COHORT_RETURN_IF_ERROR(
      levels_.inside->ReduceScatter(input, own, part, call.type, call.reduction, Later(deadline)));
  COHORT_RETURN_IF_ERROR(
      levels_.across->AllReduce(own, own, part, call.type, Then(call.reduction), far));
  COHORT_RETURN_IF_ERROR(levels_.mesh->AllReduce(At(input, rest * element),
                                                 At(output, rest * element), call.count - rest,
                                                 call.type, call.reduction, far));
  return levels_.inside->AllGather(own, output, part, call.type, Later(deadline));
}

absl::Status HierarchicalCommunicator::BroadcastInLevels(const FlatCall& call, const void* input,
                                                         void* output, Instant deadline) {
  const int64_t element = SizeOf(call.type);
  const Instant far = Sooner(deadline);
  const HostPosition from = positions_[static_cast<size_t>(call.root)];
  const bool at_root = own_.host == from.host;
  if (!even_) {
    if (at_root) {
      COHORT_RETURN_IF_ERROR(levels_.inside->Broadcast(input, output, call.count, call.type,
                                                       from.index, Later(deadline)));
    }
    if (own_.index == 0) {
      COHORT_RETURN_IF_ERROR(
          levels_.across->Broadcast(output, output, call.count, call.type, from.host, far));
    }
    if (at_root) return absl::OkStatus();
    return levels_.inside->Broadcast(output, output, call.count, call.type, 0, Later(deadline));
  }
  const int64_t part = call.count / levels_.inside->size();
  const int64_t rest = part * levels_.inside->size();
  char* const own = At(output, own_.index * part * element);
  if (at_root) {
    COHORT_RETURN_IF_ERROR(
        levels_.inside->Scatter(input, own, part, call.type, from.index, Later(deadline)));
  }
  COHORT_RETURN_IF_ERROR(levels_.across->Broadcast(own, own, part, call.type, from.host, far));
  COHORT_RETURN_IF_ERROR(levels_.mesh->Broadcast(
      rank() == call.root ? At(input, rest * element) : nullptr, At(output, rest * element),
      call.count - rest, call.type, call.root, far));
  return levels_.inside->AllGather(own, output, part, call.type, Later(deadline));
}

absl::Status HierarchicalCommunicator::AllGatherInLevels(const FlatCall& call, const void* input,
                                                         void* output, Instant deadline) {
  const Instant far = Sooner(deadline);
  const int64_t bytes = call.count * SizeOf(call.type);
  const int64_t column = levels_.across->size() * bytes;
  // One column for each position on a host, with the inputs of the ranks at that position on all
  // hosts.
  scratch_.resize(static_cast<size_t>(size() * bytes));
  char* const own = scratch_.data() + own_.index * column;
  COHORT_RETURN_IF_ERROR(levels_.across->AllGather(input, own, call.count, call.type, far));
  COHORT_RETURN_IF_ERROR(levels_.inside->AllGather(
      own, scratch_.data(), call.count * levels_.across->size(), call.type, Later(deadline)));
  for (int rank = 0; rank < size(); ++rank) {
    const HostPosition& position = positions_[static_cast<size_t>(rank)];
    std::memcpy(At(output, rank * bytes),
                scratch_.data() + position.index * column + position.host * bytes,
                static_cast<size_t>(bytes));
  }
  return absl::OkStatus();
}

absl::Status HierarchicalCommunicator::ReduceScatterInLevels(const FlatCall& call,
                                                             const void* input, void* output,
                                                             Instant deadline) {
  const Instant far = Sooner(deadline);
  const int64_t bytes = call.count * SizeOf(call.type);
  const int64_t column = levels_.across->size() * bytes;
  scratch_.resize(static_cast<size_t>(size() * bytes));
  for (int rank = 0; rank < size(); ++rank) {
    const HostPosition& position = positions_[static_cast<size_t>(rank)];
    std::memcpy(scratch_.data() + position.index * column + position.host * bytes,
                At(input, rank * bytes), static_cast<size_t>(bytes));
  }
  char* const own = scratch_.data() + own_.index * column;
  COHORT_RETURN_IF_ERROR(levels_.inside->ReduceScatter(scratch_.data(), own,
                                                       call.count * levels_.across->size(),
                                                       call.type, call.reduction, Later(deadline)));
  return levels_.across->ReduceScatter(own, output, call.count, call.type, Then(call.reduction),
                                       far);
}

void HierarchicalCommunicator::Abort(absl::string_view cause) {
  levels_.mesh->Abort(cause);
  levels_.inside->Abort(cause);
  if (levels_.across != nullptr) levels_.across->Abort(cause);
}

}  // namespace cohort::worker
