#include "worker/group/executing_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::Sizes;

constexpr int kNoRoot = -1;

int64_t Larger(const Tensor& input, const Tensor& output) {
  return std::max(input.bytes(), output.bytes());
}

}  // namespace

absl::Status ExecutingGroup::Begin(Connections connections) {
  Drop();
  generation_ = generation();
  paths_ = connections.paths;
  why_not_ = connections.why_not;
  connections.waits = &flight_recorder_.waits();
  COHORT_ASSIGN_OR_RETURN(communicator_, MakeCommunicator(std::move(connections)));
  verbs_ = std::make_unique<TensorVerbs>(
      communicator_.get(),
      [this](DataType type, const Shape& shape) { return Allocate(type, shape); });
  MutexLock lock(&end_mutex_);
  current_ = communicator_.get();
  return absl::OkStatus();
}

void ExecutingGroup::Settle() {
  constexpr absl::Duration kPatience = absl::Seconds(1);
  if (communicator_ != nullptr) communicator_->Settle(Clock::Steady().Now() + kPatience);
}

void ExecutingGroup::Drop() {
  {
    MutexLock lock(&end_mutex_);
    current_ = nullptr;
  }
  verbs_.reset();
  communicator_.reset();
}

void ExecutingGroup::End(absl::string_view cause) {
  MutexLock lock(&end_mutex_);
  if (current_ != nullptr) current_->Abort(cause);
}

void ExecutingGroup::Abort(const absl::Status& cause) {
  End(absl::StrCat("rank ", rank(), " aborted: ", cause.message()));
}

template <typename Body>
absl::Status ExecutingGroup::Run(TensorVerb verb, DataType type, int64_t bytes, int root,
                                 const CallOptions& options, Body&& body) {
  MutexLock lock(&call_mutex_);
  if (verbs_ == nullptr) {
    return absl::AbortedError("the group has not been formed again: Rejoin has failed");
  }
  const int64_t ticks = TickClock::Ticks();
  flight_recorder_.Begin(generation_, verb, type, bytes, root, ticks);
  absl::Status status = body(*verbs_, clock_.JustBefore(ticks) + TimeoutOf(options));
  flight_recorder_.End(status.code());
  return status;
}

absl::Status ExecutingGroup::AllReduce(const Tensor& input, const Tensor& output,
                                       const Reduction& reduction, const CallOptions& options) {
  return Run(TensorVerb::kAllReduce, input.type(), input.bytes(), kNoRoot, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.AllReduce(input, output, reduction, deadline);
             });
}

absl::Status ExecutingGroup::Reduce(const Tensor& input, const Tensor& output,
                                    const Reduction& reduction, int root,
                                    const CallOptions& options) {
  return Run(TensorVerb::kReduce, input.type(), input.bytes(), root, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.Reduce(input, output, reduction, root, deadline);
             });
}

absl::Status ExecutingGroup::Broadcast(const Tensor& tensor, int root, const CallOptions& options) {
  return Run(TensorVerb::kBroadcast, tensor.type(), tensor.bytes(), root, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.Broadcast(tensor, root, deadline);
             });
}

absl::Status ExecutingGroup::AllGather(const Tensor& input, const Tensor& output, int dim,
                                       const CallOptions& options) {
  return Run(TensorVerb::kAllGather, input.type(), output.bytes(), kNoRoot, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.AllGather(input, output, dim, deadline);
             });
}

absl::Status ExecutingGroup::ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                                           const Reduction& reduction, const CallOptions& options) {
  return Run(TensorVerb::kReduceScatter, input.type(), input.bytes(), kNoRoot, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.ReduceScatter(input, output, dim, reduction, deadline);
             });
}

absl::Status ExecutingGroup::AllToAll(const Tensor& input, const Tensor& output,
                                      const CallOptions& options) {
  return Run(TensorVerb::kAllToAll, input.type(), input.bytes(), kNoRoot, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.AllToAll(input, output, deadline);
             });
}

absl::Status ExecutingGroup::Gather(const Tensor& input, const Tensor& output, int dim, int root,
                                    const CallOptions& options) {
  return Run(TensorVerb::kGather, input.type(), Larger(input, output), root, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.Gather(input, output, dim, root, deadline);
             });
}

absl::Status ExecutingGroup::Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                                     const CallOptions& options) {
  return Run(TensorVerb::kScatter, output.type(), Larger(input, output), root, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.Scatter(input, output, dim, root, deadline);
             });
}

absl::Status ExecutingGroup::AllGatherV(const Tensor& input, const Tensor& output, int dim,
                                        const Sizes& sizes, const CallOptions& options) {
  return Run(TensorVerb::kAllGatherV, input.type(), output.bytes(), kNoRoot, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.AllGatherV(input, output, dim, sizes, deadline);
             });
}

absl::Status ExecutingGroup::ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                                            const Sizes& sizes, const Reduction& reduction,
                                            const CallOptions& options) {
  return Run(TensorVerb::kReduceScatterV, input.type(), input.bytes(), kNoRoot, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.ReduceScatterV(input, output, dim, sizes, reduction, deadline);
             });
}

absl::Status ExecutingGroup::GatherV(const Tensor& input, const Tensor& output, int dim,
                                     const Sizes& sizes, int root, const CallOptions& options) {
  return Run(TensorVerb::kGatherV, input.type(), Larger(input, output), root, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.GatherV(input, output, dim, sizes, root, deadline);
             });
}

absl::Status ExecutingGroup::AllToAllV(const Tensor& input, const Sizes& input_sizes,
                                       const Tensor& output, const Sizes& output_sizes,
                                       const CallOptions& options) {
  return Run(TensorVerb::kAllToAllV, input.type(), Larger(input, output), kNoRoot, options,
             [&](TensorVerbs& verbs, Instant deadline) {
               return verbs.AllToAllV(input, input_sizes, output, output_sizes, deadline);
             });
}

absl::Status ExecutingGroup::Exchange(absl::Span<const client::TensorTransfer> transfers,
                                      const CallOptions& options) {
  int64_t bytes = 0;
  for (const client::TensorTransfer& transfer : transfers) {
    bytes = std::max(bytes, transfer.tensor.bytes());
  }
  const DataType type = transfers.empty() ? DataType::kU8 : transfers[0].tensor.type();
  const int peer = transfers.size() == 1 ? transfers[0].peer : kNoRoot;
  return Run(
      TensorVerb::kExchange, type, bytes, peer, options,
      [&](TensorVerbs& verbs, Instant deadline) { return verbs.Exchange(transfers, deadline); });
}

absl::StatusOr<Sizes> ExecutingGroup::ExchangeSizes(int64_t own, const CallOptions& options) {
  Sizes sizes;
  COHORT_RETURN_IF_ERROR(Run(TensorVerb::kExchangeSizes, DataType::kI64, sizeof(own), kNoRoot,
                             options, [&](TensorVerbs& verbs, Instant deadline) -> absl::Status {
                               COHORT_ASSIGN_OR_RETURN(sizes, verbs.ExchangeSizes(own, deadline));
                               return absl::OkStatus();
                             }));
  return sizes;
}

}  // namespace cohort::worker
