#include "worker/group/executing_group.h"

#include <algorithm>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "client/collective/copy_here.h"
#include "worker/communicator/refusal.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::Sizes;

constexpr int kNoRoot = -1;
// Of calls without payload.
constexpr auto kCountsNothing = [](client::PeerCounters&) {};

int64_t Larger(const Tensor& input, const Tensor& output) {
  return std::max(input.bytes(), output.bytes());
}

}  // namespace

absl::Status ExecutingGroup::Begin(Connections connections) {
  Drop();
  generation_ = generation();
  peers_.Reset(rank(), size());
  moves_host_memory_ = placement() != Placement::kDevice;
  paths_ = connections.paths;
  hosts_ = connections.machines;
  why_not_ = connections.why_not;
  board_ = std::move(connections.board);
  connections.waits = &flight_recorder_.waits();
  COHORT_ASSIGN_OR_RETURN(communicator_, MakeCommunicator(std::move(connections)));
  verbs_ = std::make_unique<TensorVerbs>(communicator_.get(), &host_place_);
  MutexLock lock(&end_mutex_);
  current_ = communicator_.get();
  return absl::OkStatus();
}

absl::Status ExecutingGroup::BeginOnDevice(DevicePlane& plane, IdExchange& ids,
                                           absl::Duration timeout) {
  absl::StatusOr<std::unique_ptr<DeviceSide>> side =
      plane.Form(ids, *communicator_, std::move(board_), &flight_recorder_, timeout);
  if (!side.ok()) {
    Drop();
    return side.status();
  }
  device_side_ = *std::move(side);
  MutexLock lock(&end_mutex_);
  current_on_device_ = &device_side_->communicator();
  return absl::OkStatus();
}

absl::Status ExecutingGroup::NoPlane(absl::string_view group, Placement placement) {
  return absl::FailedPreconditionError(
      absl::StrCat("group ", group, " is to have tensors on GPUs (placement ", NameOf(placement),
                   "), and this rank has none"));
}

absl::StatusOr<Tensor> ExecutingGroup::AllocateOn(DevicePlane* plane, DataType type,
                                                  const Shape& shape, Device device) const {
  if (plane != nullptr && device == plane->device()) return plane->Allocate(type, shape);
  return absl::InvalidArgumentError(
      absl::StrCat("no tensor on ", device.ToString(), ": rank ", rank(), " of group ", name(),
                   plane == nullptr ? " has no GPU" : " has another GPU, ",
                   plane == nullptr ? "" : plane->device().ToString()));
}

void ExecutingGroup::Drain() {
  constexpr absl::Duration kPatience = absl::Seconds(1);
  if (communicator_ != nullptr) communicator_->Drain(Clock::Steady().Now() + kPatience);
}

void ExecutingGroup::Drop() {
  {
    MutexLock lock(&end_mutex_);
    current_ = nullptr;
    current_on_device_ = nullptr;
  }
  device_side_.reset();
  verbs_.reset();
  communicator_.reset();
}

void ExecutingGroup::End(absl::string_view cause) {
  MutexLock lock(&end_mutex_);
  if (current_ != nullptr) current_->Abort(cause);
  if (current_on_device_ != nullptr) current_on_device_->Abort(cause);
}

void ExecutingGroup::Abort(const absl::Status& cause) {
  End(absl::StrCat("rank ", rank(), " aborted: ", cause.message()));
}

TensorVerbs* ExecutingGroup::VerbsFor(Collective verb, const Tensor& tensor) {
  if (tensor.device().is_host()) {
    // What has no elements of a tensor goes by way of the host whatever the group moves.
    const bool of_all = verb == Collective::kExchangeSizes || verb == Collective::kFail ||
                        verb == Collective::kBarrier;
    return moves_host_memory_ || of_all ? verbs_.get() : nullptr;
  }
  return device_side_ == nullptr ? nullptr : &device_side_->verbs();
}

absl::Status ExecutingGroup::NoVerbs(Collective verb, const Tensor& tensor) {
  if (verbs_ == nullptr) {
    return absl::AbortedError("the group has not been formed again: Rejoin has failed");
  }
  return RefusalError(absl::StrCat(NameOf(verb), " of ", tensor.ToString(),
                                   tensor.device().is_host() ? ", in memory of the host" : "",
                                   ": the placement of group ", name(), " is ",
                                   NameOf(placement())));
}

template <typename Body, typename Count>
absl::Status ExecutingGroup::Run(Collective verb, const Tensor& tensor, int64_t bytes, int root,
                                 const CallOptions& options, Body&& body, Count&& count) {
  MutexLock lock(&call_mutex_);
  TensorVerbs* const verbs = VerbsFor(verb, tensor);
  const int64_t ticks = TickClock::Ticks();
  // Also what has no verbs here: it is a call of the others, and calls are counted on all ranks.
  flight_recorder_.Begin(generation_, verb, tensor.type(), bytes, root, ticks,
                         options.stream.has_value());
  const Instant deadline = clock_.JustBefore(ticks) + TimeoutOf(options);
  absl::Status status;
  if (ABSL_PREDICT_FALSE(verbs == nullptr)) {
    status = NoVerbs(verb, tensor);
  } else if (ABSL_PREDICT_TRUE(!options.stream.has_value())) {
    status = body(*verbs, deadline);
  } else {
    status = OnStream(verb, tensor, options,
                      [&](TensorVerbs& on_stream) { return body(on_stream, deadline); });
  }
  if (ABSL_PREDICT_FALSE(!status.ok())) {
    status = TellRefusal(verb, tensor, std::move(status), options, deadline);
  }
  if (ABSL_PREDICT_FALSE(options.stream.has_value() && captured_stream_ != nullptr &&
                         *options.stream == captured_stream_)) {
    flight_recorder_.TakeNumberBack();
  } else if (ABSL_PREDICT_TRUE(status.ok())) {
    count(peers_);
  }
  flight_recorder_.End(status.code());
  return status;
}

absl::Status ExecutingGroup::TellRefusal(Collective verb, const Tensor& tensor,
                                         absl::Status refusal, const CallOptions& options,
                                         Instant deadline) {
  if (!IsRefusal(refusal)) return refusal;
  refusal = Unmarked(std::move(refusal));
  // Of a message the other rank is not known, or has it.
  if (verb == Collective::kExchange) return refusal;
  // On streams, and where devices alone meet, nobody waits on the host.
  const bool by_device =
      device_side_ != nullptr && (!tensor.device().is_host() || !moves_host_memory_);
  if (options.stream.has_value() || (by_device && !device_side_->meets())) {
    flight_recorder_.TakeNumberBack();
    return refusal;
  }
  return verbs_->TellRefusal(refusal.message(), deadline);
}

absl::Status ExecutingGroup::Refuse(const absl::Status& why, const CallOptions& options) {
  {
    MutexLock lock(&call_mutex_);
    // If only the devices meet, no rank waits on the host.
    if (!moves_host_memory_ && device_side_ != nullptr && !device_side_->meets()) return why;
  }
  CallOptions blocking;
  blocking.timeout = options.timeout;
  return Run(
      Collective::kFail, Tensor(), 0, kNoRoot, blocking,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.TellRefusal(why.message(), deadline);
      },
      kCountsNothing);
}

absl::Status ExecutingGroup::CopyAll(absl::Span<const client::TensorCopy> copies,
                                     const CallOptions& options) {
  return client::CopyHere(plane(), copies, options, TimeoutOf(options));
}

absl::Status ExecutingGroup::OnStream(Collective verb, const Tensor& tensor,
                                      const CallOptions& options,
                                      absl::FunctionRef<absl::Status(TensorVerbs&)> body) {
  if (verb == Collective::kBarrier) {
    return RefusalError(
        "barrier on a stream: the ranks' threads meet in a barrier; an all_reduce of one element "
        "orders streams");
  }
  if (tensor.device().is_host()) {
    return RefusalError(absl::StrCat(NameOf(verb), " of ", tensor.ToString(),
                                     " on a stream: those are for tensors on GPUs"));
  }
  return device_side_->OnStream(*options.stream, TimeoutOf(options), body);
}

absl::Status ExecutingGroup::AwaitStreams(const CallOptions& options) {
  MutexLock lock(&call_mutex_);
  if (device_side_ == nullptr) return absl::OkStatus();
  return device_side_->AwaitStreams(Clock::Steady().Now() + TimeoutOf(options));
}

absl::Status ExecutingGroup::AllReduce(const Tensor& input, const Tensor& output,
                                       const Reduction& reduction, const CallOptions& options) {
  return Run(
      Collective::kAllReduce, input, input.bytes(), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.AllReduce(input, output, reduction, deadline);
      },
      [&](client::PeerCounters& peers) { peers.CountEach(input.bytes(), input.bytes()); });
}

absl::Status ExecutingGroup::Reduce(const Tensor& input, const Tensor& output,
                                    const Reduction& reduction, int root,
                                    const CallOptions& options) {
  return Run(
      Collective::kReduce, input, input.bytes(), root, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.Reduce(input, output, reduction, root, deadline);
      },
      [&](client::PeerCounters& peers) { peers.CountToRoot(root, input.bytes()); });
}

absl::Status ExecutingGroup::Broadcast(const Tensor& tensor, int root, const CallOptions& options) {
  return Run(
      Collective::kBroadcast, tensor, tensor.bytes(), root, options,
      [&](TensorVerbs& verbs, Instant deadline) { return verbs.Broadcast(tensor, root, deadline); },
      [&](client::PeerCounters& peers) { peers.CountFromRoot(root, tensor.bytes()); });
}

absl::Status ExecutingGroup::AllGather(const Tensor& input, const Tensor& output, int dim,
                                       const CallOptions& options) {
  return Run(
      Collective::kAllGather, input, output.bytes(), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.AllGather(input, output, dim, deadline);
      },
      [&](client::PeerCounters& peers) { peers.CountEach(input.bytes(), input.bytes()); });
}

absl::Status ExecutingGroup::ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                                           const Reduction& reduction, const CallOptions& options) {
  return Run(
      Collective::kReduceScatter, input, input.bytes(), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.ReduceScatter(input, output, dim, reduction, deadline);
      },
      [&](client::PeerCounters& peers) { peers.CountEach(output.bytes(), output.bytes()); });
}

absl::Status ExecutingGroup::AllToAll(const Tensor& input, const Tensor& output,
                                      const CallOptions& options) {
  return Run(
      Collective::kAllToAll, input, input.bytes(), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) { return verbs.AllToAll(input, output, deadline); },
      [&](client::PeerCounters& peers) { peers.CountEachPart(input.bytes()); });
}

absl::Status ExecutingGroup::Gather(const Tensor& input, const Tensor& output, int dim, int root,
                                    const CallOptions& options) {
  return Run(
      Collective::kGather, input, Larger(input, output), root, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.Gather(input, output, dim, root, deadline);
      },
      [&](client::PeerCounters& peers) { peers.CountToRoot(root, input.bytes()); });
}

absl::Status ExecutingGroup::Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                                     const CallOptions& options) {
  return Run(
      Collective::kScatter, output, Larger(input, output), root, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.Scatter(input, output, dim, root, deadline);
      },
      [&](client::PeerCounters& peers) { peers.CountFromRoot(root, output.bytes()); });
}

absl::Status ExecutingGroup::AllGatherV(const Tensor& input, const Tensor& output, int dim,
                                        const Sizes& sizes, const CallOptions& options) {
  return Run(
      Collective::kAllGatherV, input, output.bytes(), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.AllGatherV(input, output, dim, sizes, deadline);
      },
      [&](client::PeerCounters& peers) {
        peers.CountSendEach(input.bytes());
        peers.CountReceiveParts(sizes, output.bytes());
      });
}

absl::Status ExecutingGroup::ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                                            const Sizes& sizes, const Reduction& reduction,
                                            const CallOptions& options) {
  return Run(
      Collective::kReduceScatterV, input, input.bytes(), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.ReduceScatterV(input, output, dim, sizes, reduction, deadline);
      },
      [&](client::PeerCounters& peers) {
        peers.CountSendParts(sizes, input.bytes());
        peers.CountReceiveEach(output.bytes());
      });
}

absl::Status ExecutingGroup::GatherV(const Tensor& input, const Tensor& output, int dim,
                                     const Sizes& sizes, int root, const CallOptions& options) {
  return Run(
      Collective::kGatherV, input, Larger(input, output), root, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.GatherV(input, output, dim, sizes, root, deadline);
      },
      [&](client::PeerCounters& peers) {
        peers.CountPartsToRoot(root, sizes, output.bytes(), input.bytes());
      });
}

absl::Status ExecutingGroup::AllToAllV(const Tensor& input, const Sizes& input_sizes,
                                       const Tensor& output, const Sizes& output_sizes,
                                       const CallOptions& options) {
  return Run(
      Collective::kAllToAllV, input, Larger(input, output), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) {
        return verbs.AllToAllV(input, input_sizes, output, output_sizes, deadline);
      },
      [&](client::PeerCounters& peers) {
        peers.CountSendParts(input_sizes, input.bytes());
        peers.CountReceiveParts(output_sizes, output.bytes());
      });
}

absl::Status ExecutingGroup::Barrier(const CallOptions& options) {
  return Run(
      Collective::kBarrier, Tensor(), 0, kNoRoot, options,
      [](TensorVerbs& verbs, Instant deadline) { return verbs.Barrier(deadline); }, kCountsNothing);
}

absl::Status ExecutingGroup::Exchange(absl::Span<const client::TensorTransfer> transfers,
                                      const CallOptions& options) {
  int64_t bytes = 0;
  for (const client::TensorTransfer& transfer : transfers) {
    bytes = std::max(bytes, transfer.tensor.bytes());
  }
  // Nothing lies where the group's tensors do.
  const bool on_gpu = placement() == Placement::kDevice ||
                      (placement() == Placement::kBoth && options.stream.has_value());
  const Tensor none(nullptr, DataType::kU8, {0}, nullptr, on_gpu ? device() : Device::Host());
  const Tensor& first = transfers.empty() ? none : transfers[0].tensor;
  const int peer = transfers.size() == 1 ? transfers[0].peer : kNoRoot;
  return Run(
      Collective::kExchange, first, bytes, peer, options,
      [&](TensorVerbs& verbs, Instant deadline) { return verbs.Exchange(transfers, deadline); },
      [&](client::PeerCounters& peers) { client::CountTransfers(transfers, peers); });
}

absl::StatusOr<int> ExecutingGroup::AwaitMessage(absl::Span<const int> peers,
                                                 const CallOptions& options) {
  if (TimeoutOf(options) <= absl::ZeroDuration() && !options.stream.has_value()) {
    return LookForMessage(peers);
  }
  int first = kNoRoot;
  COHORT_RETURN_IF_ERROR(Run(
      Collective::kExchange, Tensor(), 0, peers.size() == 1 ? peers[0] : kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) -> absl::Status {
        COHORT_ASSIGN_OR_RETURN(first, verbs.AwaitMessage(peers, deadline));
        return absl::OkStatus();
      },
      kCountsNothing));
  return first;
}

absl::StatusOr<int> ExecutingGroup::LookForMessage(absl::Span<const int> peers) {
  MutexLock lock(&call_mutex_);
  if (ABSL_PREDICT_FALSE(verbs_ == nullptr || !moves_host_memory_)) {
    return Unmarked(NoVerbs(Collective::kExchange, Tensor()));
  }
  return verbs_->AwaitMessage(peers, absl::InfinitePast());
}

absl::StatusOr<Sizes> ExecutingGroup::ExchangeSizes(int64_t own, const CallOptions& options) {
  Sizes sizes;
  COHORT_RETURN_IF_ERROR(Run(
      Collective::kExchangeSizes, Tensor(&own, DataType::kI64, {1}), sizeof(own), kNoRoot, options,
      [&](TensorVerbs& verbs, Instant deadline) -> absl::Status {
        COHORT_ASSIGN_OR_RETURN(sizes, verbs.ExchangeSizes(own, deadline));
        return absl::OkStatus();
      },
      kCountsNothing));
  return sizes;
}

}  // namespace cohort::worker
