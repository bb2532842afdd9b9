#include "worker/group/in_process_group.h"

#include <algorithm>

#include "absl/base/optimization.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/argument_error.h"

namespace cohort::worker {
namespace {

using client::CallOptions;

constexpr int kNoRoot = -1;
// For calls without payload.
constexpr auto kCountsNothing = [](client::PeerCounters&) {};

}  // namespace

absl::Status InProcessGroup::Begin(Connections connections) {
  Drop();
  generation_ = generation();
  peers_.Reset(rank(), size());
  moves_host_memory_ = placement() != Placement::kDevice;
  paths_ = connections.paths;
  hosts_ = connections.machines;
  why_not_ = connections.why_not;
  operation_log_ = std::move(connections.operation_log);
  connections.waits = &flight_recorder_.waits();
  COHORT_ASSIGN_OR_RETURN(communicator_, MakeCommunicator(std::move(connections)));
  collectives_ = std::make_unique<TensorCollectives>(communicator_.get(), &host_location_);
  MutexLock lock(&end_mutex_);
  current_ = communicator_.get();
  return absl::OkStatus();
}

absl::Status InProcessGroup::BeginOnDevice(GpuContext& gpu, UniqueIdExchange& ids,
                                           absl::Duration timeout) {
  absl::StatusOr<std::unique_ptr<DeviceSide>> side =
      gpu.Form(ids, *communicator_, std::move(operation_log_), &flight_recorder_, timeout);
  if (!side.ok()) {
    Drop();
    return side.status();
  }
  device_side_ = *std::move(side);
  MutexLock lock(&end_mutex_);
  current_on_device_ = &device_side_->communicator();
  return absl::OkStatus();
}

absl::Status InProcessGroup::NoGpu(absl::string_view group, Placement placement) {
  return absl::FailedPreconditionError(
      absl::StrCat("group ", group, " is to have tensors on GPUs (placement ", NameOf(placement),
                   "), and this rank has none"));
}

absl::StatusOr<Tensor> InProcessGroup::AllocateOn(GpuContext* gpu, DataType type,
                                                  const Shape& shape, Device device) const {
  if (gpu != nullptr && device == gpu->device()) return gpu->Allocate(type, shape);
  return absl::InvalidArgumentError(
      absl::StrCat("no tensor on ", device.ToString(), ": rank ", rank(), " of group ", name(),
                   gpu == nullptr ? " has no GPU" : " has another GPU, ",
                   gpu == nullptr ? "" : gpu->device().ToString()));
}

void InProcessGroup::Drain() {
  constexpr absl::Duration kTimeout = absl::Seconds(1);
  if (communicator_ != nullptr) communicator_->Drain(Clock::Steady().Now() + kTimeout);
}

void InProcessGroup::Drop() {
  {
    MutexLock lock(&end_mutex_);
    current_ = nullptr;
    current_on_device_ = nullptr;
  }
  device_side_.reset();
  collectives_.reset();
  communicator_.reset();
}

void InProcessGroup::End(absl::string_view cause) {
  MutexLock lock(&end_mutex_);
  if (current_ != nullptr) current_->Abort(cause);
  if (current_on_device_ != nullptr) current_on_device_->Abort(cause);
}

void InProcessGroup::NoteLeft(int rank, absl::string_view cause) {
  MutexLock lock(&end_mutex_);
  if (current_ != nullptr) current_->NoteLeft(rank, cause);
  if (current_on_device_ != nullptr) current_on_device_->NoteLeft(rank, cause);
}

void InProcessGroup::Abort(const absl::Status& cause) {
  End(absl::StrCat("rank ", rank(), " aborted: ", cause.message()));
}

TensorCollectives* InProcessGroup::CollectivesFor(Collective collective, const Tensor& tensor) {
  if (tensor.device().is_host()) {
    // These calls move no tensor: they go through the host in every placement.
    const bool of_all = collective == Collective::kExchangeSizes ||
                        collective == Collective::kFail || collective == Collective::kBarrier;
    return moves_host_memory_ || of_all ? collectives_.get() : nullptr;
  }
  return device_side_ == nullptr ? nullptr : &device_side_->collectives();
}

absl::Status InProcessGroup::NoCollectives(Collective collective, const Tensor& tensor) {
  if (collectives_ == nullptr) {
    return absl::AbortedError("the group has not been formed again: Rejoin has failed");
  }
  return ArgumentError(absl::StrCat(NameOf(collective), " of ", tensor.ToString(),
                                    tensor.device().is_host() ? ", in memory of the host" : "",
                                    ": the placement of group ", name(), " is ",
                                    NameOf(placement())));
}

template <typename Body, typename Count>
absl::Status InProcessGroup::RunRecorded(Collective collective, const Tensor& tensor, int64_t bytes,
                                         int root, const CallOptions& options, Body&& body,
                                         Count&& count) {
  if (ABSL_PREDICT_FALSE(!call_mutex_.LockFor(TimeoutOf(options)))) {
    return NoTurn(collective, options);
  }
  const TimedMutexLock lock(&call_mutex_, std::adopt_lock);
  TensorCollectives* const collectives = CollectivesFor(collective, tensor);
  const int64_t ticks = TickClock::Ticks();
  // A call that this rank cannot run is recorded too: other ranks run it, and all ranks count the
  // same calls.
  flight_recorder_.Begin(generation_, collective, tensor.type(), bytes, root, ticks,
                         options.stream.has_value());
  const Instant deadline = clock_.JustBefore(ticks) + TimeoutOf(options);
  absl::Status status;
  if (ABSL_PREDICT_FALSE(collectives == nullptr)) {
    status = NoCollectives(collective, tensor);
  } else if (ABSL_PREDICT_TRUE(!options.stream.has_value())) {
    status = body(*collectives, deadline);
  } else {
    status = OnStream(collective, tensor, options,
                      [&](TensorCollectives& on_stream) { return body(on_stream, deadline); });
  }
  if (ABSL_PREDICT_FALSE(!status.ok())) {
    status = FailOnAllRanks(collective, tensor, std::move(status), options, deadline);
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

std::string InProcessGroup::HadNoTurn(Collective collective, const CallOptions& options) const {
  return absl::StrCat(NameOf(collective), " of rank ", rank(), " in group ", name(),
                      " did not begin within ", absl::FormatDuration(TimeoutOf(options)),
                      ": another call of this rank was not over");
}

absl::Status InProcessGroup::NoTurn(Collective collective, const CallOptions& options) {
  const std::string what = HadNoTurn(collective, options);
  End(what);
  return absl::DeadlineExceededError(what);
}

absl::Status InProcessGroup::FailOnAllRanks(Collective collective, const Tensor& tensor,
                                            absl::Status error, const CallOptions& options,
                                            Instant deadline) {
  if (!IsArgumentError(error)) return error;
  error = Unmarked(std::move(error));
  // A message's other rank is not told: it is unknown, or gets the same error.
  if (collective == Collective::kExchange) return error;
  const bool by_device =
      device_side_ != nullptr && (!tensor.device().is_host() || !moves_host_memory_);
  if (options.stream.has_value() || (by_device && !device_side_->has_host_barrier())) {
    flight_recorder_.TakeNumberBack();
    RefuseOnStream(error, options, deadline);
    return error;
  }
  return collectives_->FailOnAllRanks(error.message(), deadline);
}

void InProcessGroup::RefuseOnStream(const absl::Status& why, const CallOptions& options,
                                    Instant deadline) {
  if (!options.stream.has_value() || device_side_ == nullptr) return;
  // This rank gets `why`, whatever becomes of the others.
  device_side_->Refuse(*options.stream, why.message(), deadline).IgnoreError();
}

absl::Status InProcessGroup::FailCollective(const absl::Status& why, const CallOptions& options) {
  if (options.stream.has_value()) {
    if (!call_mutex_.LockFor(TimeoutOf(options))) return why;
    const TimedMutexLock lock(&call_mutex_, std::adopt_lock);
    RefuseOnStream(why, options, Clock::Steady().Now() + TimeoutOf(options));
    return why;
  }
  {
    if (!call_mutex_.LockFor(TimeoutOf(options))) return NoTurn(Collective::kFail, options);
    const TimedMutexLock lock(&call_mutex_, std::adopt_lock);
    // If there is no barrier on the host, no rank waits there.
    if (!moves_host_memory_ && device_side_ != nullptr && !device_side_->has_host_barrier())
      return why;
  }
  CallOptions blocking;
  blocking.timeout = options.timeout;
  return RunRecorded(
      Collective::kFail, Tensor(), 0, kNoRoot, blocking,
      [&](TensorCollectives& collectives, Instant deadline) {
        return collectives.FailOnAllRanks(why.message(), deadline);
      },
      kCountsNothing);
}

absl::Status InProcessGroup::CopyAll(absl::Span<const client::TensorCopy> copies,
                                     const CallOptions& options) {
  const auto is_host = [](const client::TensorCopy& copy) {
    return copy.from.device().is_host() && copy.to.device().is_host();
  };
  if (!options.stream.has_value() && std::all_of(copies.begin(), copies.end(), is_host)) {
    for (const client::TensorCopy& copy : copies) {
      COHORT_RETURN_IF_ERROR(CopyTensor(copy.from, copy.to));
    }
    return absl::OkStatus();
  }
  GpuContext* const gpu = gpu_context();
  for (const client::TensorCopy& copy : copies) {
    for (const Device device : {copy.from.device(), copy.to.device()}) {
      if (device.is_host() || (gpu != nullptr && device == gpu->device())) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "a copy of ", copy.from.ToString(), " to ", copy.to.ToString(), ": this rank's GPU is ",
          gpu == nullptr ? "none" : gpu->device().ToString()));
    }
  }
  if (gpu == nullptr) {
    return absl::InvalidArgumentError(
        "a stream is for tensors on GPUs: this group moves memory of the host");
  }
  return gpu->Copy(copies, options.stream, TimeoutOf(options));
}

absl::Status InProcessGroup::OnStream(Collective collective, const Tensor& tensor,
                                      const CallOptions& options,
                                      absl::FunctionRef<absl::Status(TensorCollectives&)> body) {
  if (collective == Collective::kBarrier) {
    return ArgumentError(
        "barrier on a stream: a barrier synchronizes the ranks' threads; an all_reduce of one "
        "element orders streams");
  }
  if (tensor.device().is_host()) {
    return ArgumentError(absl::StrCat(NameOf(collective), " of ", tensor.ToString(),
                                      " on a stream: those are for tensors on GPUs"));
  }
  return device_side_->OnStream(*options.stream, TimeoutOf(options), body);
}

absl::Status InProcessGroup::AwaitStreams(const CallOptions& options) {
  const Instant deadline = Clock::Steady().Now() + TimeoutOf(options);
  // No other rank waits for it, so nothing ends if it has no turn.
  if (!call_mutex_.LockFor(TimeoutOf(options))) {
    return absl::DeadlineExceededError(HadNoTurn(Collective::kAwaitStreams, options));
  }
  const TimedMutexLock lock(&call_mutex_, std::adopt_lock);
  if (device_side_ == nullptr) return absl::OkStatus();
  return device_side_->AwaitStreams(deadline);
}

absl::Status InProcessGroup::Run(const CollectiveCall& call, const Tensor& input,
                                 const Tensor& output, const CallOptions& options) {
  // A tensor that every rank passes.
  const Tensor& tensor = call.collective == Collective::kScatter ? output : input;
  return RunRecorded(
      call.collective, tensor, BytesOf(call, input, output), call.root, options,
      [&](TensorCollectives& collectives, Instant deadline) {
        return collectives.Run(call, input, output, deadline);
      },
      [&](client::PeerCounters& peers) { client::CountCollective(call, input, output, peers); });
}

absl::Status InProcessGroup::Exchange(absl::Span<const client::TensorTransfer> transfers,
                                      const CallOptions& options) {
  int64_t bytes = 0;
  for (const client::TensorTransfer& transfer : transfers) {
    bytes = std::max(bytes, transfer.tensor.bytes());
  }
  // An empty exchange counts as one in the memory where the group's tensors lie.
  const bool on_gpu = placement() == Placement::kDevice ||
                      (placement() == Placement::kBoth && options.stream.has_value());
  const Tensor none(nullptr, DataType::kU8, {0}, nullptr, on_gpu ? device() : Device::Host());
  const Tensor& first = transfers.empty() ? none : transfers[0].tensor;
  const int peer = transfers.size() == 1 ? transfers[0].peer : kNoRoot;
  return RunRecorded(
      Collective::kExchange, first, bytes, peer, options,
      [&](TensorCollectives& collectives, Instant deadline) {
        return collectives.Exchange(transfers, deadline);
      },
      [&](client::PeerCounters& peers) { client::CountTransfers(transfers, peers); });
}

absl::StatusOr<MessageInfo> InProcessGroup::AwaitMessage(absl::Span<const int> peers,
                                                         const CallOptions& options) {
  if (TimeoutOf(options) <= absl::ZeroDuration() && !options.stream.has_value()) {
    return LookForMessage(peers);
  }
  MessageInfo message;
  COHORT_RETURN_IF_ERROR(RunRecorded(
      Collective::kExchange, Tensor(), 0, peers.size() == 1 ? peers[0] : kNoRoot, options,
      [&](TensorCollectives& collectives, Instant deadline) -> absl::Status {
        COHORT_ASSIGN_OR_RETURN(message, collectives.AwaitMessage(peers, deadline));
        return absl::OkStatus();
      },
      kCountsNothing));
  return message;
}

absl::StatusOr<MessageInfo> InProcessGroup::LookForMessage(absl::Span<const int> peers) {
  // It polls, so it does not wait for another thread's call.
  if (!call_mutex_.LockFor(absl::ZeroDuration())) {
    return absl::DeadlineExceededError(absl::StrCat(
        "no message was looked for: another call of rank ", rank(), " in group ", name(), " runs"));
  }
  const TimedMutexLock lock(&call_mutex_, std::adopt_lock);
  if (ABSL_PREDICT_FALSE(collectives_ == nullptr || !moves_host_memory_)) {
    return Unmarked(NoCollectives(Collective::kExchange, Tensor()));
  }
  return collectives_->AwaitMessage(peers, absl::InfinitePast());
}

}  // namespace cohort::worker
