#include "worker/communicator/nccl/nccl_communicator.h"

#include <optional>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/nccl/nccl_call.h"
#include "worker/communicator/nccl/nccl_error.h"
#include "worker/communicator/nccl/nccl_lane.h"
#include "worker/cuda/device.h"
#include "worker/cuda/wait.h"

namespace cohort::worker {
namespace {

// At a device that works, before NCCL and the other ranks are looked at each time, too.
constexpr int kLooksAlone = 64;
// Each holds two events. CUDA itself takes about as many before it lets callers wait.
constexpr size_t kMostInFlight = 1024;

Operation MakeOperation(Verb verb, int64_t count, DataType type, uint32_t tag, int root = 0,
                        const Reduction& reduction = {}) {
  Operation operation;
  operation.verb = verb;
  operation.count = count;
  operation.type = type;
  operation.reduction = reduction;
  operation.root = root;
  operation.tag = tag;
  return operation;
}

}  // namespace

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Form(NcclFormation formation,
                                                                         Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(formation.device));
  COHORT_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(formation.device));
  NcclCliqueOptions options;
  options.device = formation.device;
  options.rank = formation.host->rank();
  options.size = formation.host->size();
  options.ids = formation.ids;
  options.name = formation.name;
  auto result = absl::WrapUnique(
      new NcclCommunicator(std::move(formation), std::move(stream), std::move(done)));
  absl::StatusOr<std::unique_ptr<NcclClique>> clique =
      NcclClique::Form(result->nccl_, options, deadline, [&] { return result->Standing(); });
  if (!clique.ok()) {
    // Others wait for this rank in vain.
    result->host_->Abort(absl::StrCat("rank ", result->rank(),
                                      " could not form NCCL's group: ", clique.status().message()));
    return clique.status();
  }
  result->clique_ = *std::move(clique);
  return result;
}

NcclCommunicator::NcclCommunicator(NcclFormation formation, cuda::Stream stream, cuda::Event done)
    : nccl_(std::move(formation.nccl)),
      compute_capability_(formation.compute_capability),
      host_(formation.host),
      stream_(std::move(stream)),
      done_(std::move(done)),
      agreement_(host_),
      flight_(formation.device) {}

NcclCommunicator::~NcclCommunicator() { NcclWatchdog::OfProcess().Forget(this); }

absl::Status NcclCommunicator::Broken() {
  MutexLock lock(&mutex_);
  return broken_;
}

absl::Status NcclCommunicator::Standing() {
  COHORT_RETURN_IF_ERROR(Broken());
  if (size() == 1) return absl::OkStatus();
  // One at a time: whoever ended the group tells all, and where all share memory any tells it.
  looks_at_ = (looks_at_ + 1) % size();
  if (looks_at_ == rank()) return absl::OkStatus();
  return host_->HasMessage(looks_at_).status();
}

absl::Status NcclCommunicator::Stand() {
  const absl::Status status = Standing();
  // What is still in flight here would wait for ranks that have given up.
  return status.ok() ? status : Break(status);
}

void NcclCommunicator::Abort(absl::string_view cause) {
  {
    MutexLock lock(&mutex_);
    if (broken_.ok()) broken_ = absl::AbortedError(cause);
  }
  // Whoever waits for the device notices, and ends it; so does the watchdog.
  host_->Abort(cause);
}

absl::Status NcclCommunicator::Break(const absl::Status& status, NcclClique::Patience patience) {
  absl::Status cause;
  absl::Status answer;
  {
    MutexLock lock(&mutex_);
    answer = broken_.ok() ? status : broken_;
    if (broken_.ok()) {
      broken_ =
          absl::IsAborted(status)
              ? status
              : absl::AbortedError(absl::StrCat("rank ", rank(), " gave up: ", status.message()));
    }
    cause = broken_;
  }
  host_->Abort(cause.message());
  flight_.Clear();
  if (clique_ != nullptr) clique_->Revoke(patience);
  return answer;
}

bool NcclCommunicator::Look() {
  // A thread without a device would make the first one its own.
  const absl::StatusOr<cuda::CurrentDevice> current = cuda::CurrentDevice::Set(clique_->device());
  absl::Status status = current.status();
  if (status.ok()) status = Broken();
  if (status.ok()) {
    const absl::StatusOr<bool> in_flight = LookAtFlight();
    if (in_flight.ok()) return *in_flight;
    status = in_flight.status();
  }
  Break(status, NcclClique::Patience::kDoNotWait).IgnoreError();
  return false;
}

absl::Status NcclCommunicator::Run(const Operation& operation, const void* input, void* output,
                                   Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank(), size(), input, output));
  COHORT_ASSIGN_OR_RETURN(const NcclOperands operands, OperandsOf(operation, compute_capability_));
  COHORT_RETURN_IF_ERROR(Stand());
  absl::Status status = agreement_.OnOperation(operation, deadline);
  if (!status.ok()) return IsMismatch(status) ? status : Break(status);
  ++sequence_;
  if (operation.count == 0) return absl::OkStatus();
  status = Issue(operation, operands, input, output, stream_.get(), deadline);
  if (status.ok()) status = AwaitDevice(Describe(operation), deadline);
  return status.ok() ? status : Break(status);
}

absl::Status NcclCommunicator::Issue(const Operation& operation, NcclOperands operands,
                                     const void* input, void* output, cudaStream_t stream,
                                     Instant deadline) {
  const char* const call = NcclFunction(operation.verb);
  const bool scales = operands.op == ncclNumOps;
  COHORT_RETURN_IF_ERROR(RunIssued(call, deadline, [&] {
    if (scales) {
      const ncclResult_t made =
          MakeScaledSum(*nccl_, operation, operands.type, clique_->comm(), &operands.op);
      if (made != ncclSuccess) return made;
    }
    return CallNccl(*nccl_, operation, operands, input, output, clique_->comm(), stream);
  }));
  COHORT_RETURN_IF_ERROR(clique_->AwaitCalls(call, deadline, [this] { return Standing(); }));
  if (!scales) return absl::OkStatus();
  // Not sooner: a communicator that is in progress takes no other call.
  return RunIssued("ncclRedOpDestroy", deadline,
                   [&] { return nccl_->RedOpDestroy(operands.op, clique_->comm()); });
}

absl::Status NcclCommunicator::IssueMessages(absl::Span<const Transfer> transfers,
                                             const std::vector<size_t>& which, cudaStream_t stream,
                                             Instant deadline) {
  COHORT_RETURN_IF_ERROR(RunIssued("ncclGroupEnd", deadline, [&] {
    return CallNccl(*nccl_, transfers, which, clique_->comm(), stream);
  }));
  return clique_->AwaitCalls("ncclGroupEnd", deadline, [this] { return Standing(); });
}

absl::Status NcclCommunicator::RunIssued(const char* call, Instant deadline,
                                         absl::FunctionRef<ncclResult_t()> issue) {
  COHORT_ASSIGN_OR_RETURN(const cuda::CurrentDevice current,
                          cuda::CurrentDevice::Set(clique_->device()));
  COHORT_ASSIGN_OR_RETURN(const NcclLane::Turn turn,
                          NcclLane::Of(clique_->device()).Enter(deadline));
  return NcclError(*nccl_, issue(), call);
}

absl::Status NcclCommunicator::AwaitDevice(const std::string& what, Instant deadline) {
  COHORT_RETURN_IF_ERROR(done_.Record(stream_.get()));
  int looks = 0;
  const auto is_done = [&]() -> absl::StatusOr<bool> {
    COHORT_ASSIGN_OR_RETURN(const bool done, done_.Query());
    if (done || ++looks < kLooksAlone) return done;
    COHORT_RETURN_IF_ERROR(clique_->Health(deadline));
    COHORT_RETURN_IF_ERROR(Standing());
    return false;
  };
  COHORT_ASSIGN_OR_RETURN(const bool done, cuda::PollUntil(is_done, deadline));
  if (done) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(what, ": all ranks have come, and the devices do not finish"));
}

absl::Status NcclCommunicator::AllReduce(const void* input, void* output, int64_t count,
                                         DataType type, const Reduction& reduction,
                                         Instant deadline) {
  return Run(MakeOperation(Verb::kAllReduce, count, type, tag(), 0, reduction), input, output,
             deadline);
}

absl::Status NcclCommunicator::Reduce(const void* input, void* output, int64_t count, DataType type,
                                      const Reduction& reduction, int root, Instant deadline) {
  return Run(MakeOperation(Verb::kReduce, count, type, tag(), root, reduction), input, output,
             deadline);
}

absl::Status NcclCommunicator::Broadcast(const void* input, void* output, int64_t count,
                                         DataType type, int root, Instant deadline) {
  return Run(MakeOperation(Verb::kBroadcast, count, type, tag(), root), input, output, deadline);
}

absl::Status NcclCommunicator::AllGather(const void* input, void* output, int64_t count,
                                         DataType type, Instant deadline) {
  return Run(MakeOperation(Verb::kAllGather, count, type, tag()), input, output, deadline);
}

absl::Status NcclCommunicator::ReduceScatter(const void* input, void* output, int64_t count,
                                             DataType type, const Reduction& reduction,
                                             Instant deadline) {
  return Run(MakeOperation(Verb::kReduceScatter, count, type, tag(), 0, reduction), input, output,
             deadline);
}

absl::Status NcclCommunicator::AllToAll(const void* input, void* output, int64_t count,
                                        DataType type, Instant deadline) {
  return Run(MakeOperation(Verb::kAllToAll, count, type, tag()), input, output, deadline);
}

absl::Status NcclCommunicator::Gather(const void* input, void* output, int64_t count, DataType type,
                                      int root, Instant deadline) {
  return Run(MakeOperation(Verb::kGather, count, type, tag(), root), input, output, deadline);
}

absl::Status NcclCommunicator::Scatter(const void* input, void* output, int64_t count,
                                       DataType type, int root, Instant deadline) {
  return Run(MakeOperation(Verb::kScatter, count, type, tag(), root), input, output, deadline);
}

absl::Status NcclCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank(), size()));
  COHORT_RETURN_IF_ERROR(Stand());
  bool posted = false;
  const auto post = [&](const std::vector<size_t>& ready) {
    posted = true;
    return IssueMessages(transfers, ready, stream_.get(), deadline);
  };
  const absl::Status agreed = agreement_.OnTransfers(transfers, tag(), deadline, post);
  if (!agreed.ok() && !absl::IsInvalidArgument(agreed)) return Break(agreed);
  if (!posted) return agreed;
  const absl::Status done = AwaitDevice(
      transfers.size() == 1 ? Describe(transfers[0]) : absl::StrCat(transfers.size(), " messages"),
      deadline);
  return done.ok() ? agreed : Break(done);
}

absl::Status NcclCommunicator::Barrier(Instant deadline) {
  COHORT_RETURN_IF_ERROR(Stand());
  const absl::Status status =
      agreement_.OnOperation(MakeOperation(Verb::kBarrier, 0, DataType::kU8, tag()), deadline);
  return status.ok() || IsMismatch(status) ? status : Break(status);
}

absl::Status NcclCommunicator::Enqueue(const Operation& operation, const void* input, void* output,
                                       const NcclCallOptions& options, Instant deadline) {
  if (operation.verb == Verb::kBarrier) {
    return absl::InvalidArgumentError("a barrier is of the ranks' threads, not of a stream");
  }
  COHORT_RETURN_IF_ERROR(CheckArguments(operation, rank(), size(), input, output));
  COHORT_ASSIGN_OR_RETURN(const NcclOperands operands, OperandsOf(operation, compute_capability_));
  COHORT_RETURN_IF_ERROR(Stand());
  NcclWork work;
  work.operation = operation;
  if (operation.count == 0) {
    ++sequence_;
    return absl::OkStatus();
  }
  return Launch(
      work, options, deadline, [&] { return absl::OkStatus(); },
      [&] { return Issue(operation, operands, input, output, options.stream, deadline); });
}

absl::Status NcclCommunicator::Enqueue(absl::Span<const Transfer> transfers,
                                       const NcclCallOptions& options, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank(), size()));
  COHORT_RETURN_IF_ERROR(Stand());
  std::vector<size_t> filled;
  for (size_t i = 0; i < transfers.size(); ++i) {
    if (transfers[i].count > 0) filled.push_back(i);
  }
  if (filled.empty()) return absl::OkStatus();
  NcclWork work;
  work.messages = filled.size();
  work.message = transfers[filled[0]];
  return Launch(
      work, options, deadline, [] { return absl::OkStatus(); },
      [&] { return IssueMessages(transfers, filled, options.stream, deadline); });
}

absl::Status NcclCommunicator::Launch(NcclWork work, const NcclCallOptions& options,
                                      Instant deadline, absl::FunctionRef<absl::Status()> agree,
                                      absl::FunctionRef<absl::Status()> issue) {
  // The default stream is that of the thread's device.
  COHORT_ASSIGN_OR_RETURN(const cuda::CurrentDevice current,
                          cuda::CurrentDevice::Set(clique_->device()));
  COHORT_RETURN_IF_ERROR(AwaitRoom(deadline));
  // Of what is captured nobody may ask how far it is, nor knows how often it will run.
  COHORT_ASSIGN_OR_RETURN(const bool captured, cuda::IsCaptured(options.stream));
  std::optional<NcclFlight::Marks> marks;
  if (!captured) {
    COHORT_ASSIGN_OR_RETURN(NcclFlight::Marks taken, flight_.TakeMarks());
    COHORT_RETURN_IF_ERROR(taken.start.Record(options.stream));
    marks.emplace(std::move(taken));
  }
  // Up to here the group is as it was.
  COHORT_RETURN_IF_ERROR(agree());
  if (work.messages == 0) work.sequence = ++sequence_;
  absl::Status status = issue();
  if (status.ok() && !captured) status = marks->end.Record(options.stream);
  if (!status.ok()) return Break(status);
  if (captured) return status;
  flight_.Add(work, *std::move(marks), options.timeout);
  NcclWatchdog::OfProcess().Watch(this);
  return status;
}

absl::Status NcclCommunicator::AwaitRoom(Instant deadline) {
  if (flight_.size() < kMostInFlight) return absl::OkStatus();
  const auto has_room = [this]() -> absl::StatusOr<bool> {
    COHORT_RETURN_IF_ERROR(Check());
    return flight_.size() < kMostInFlight;
  };
  COHORT_ASSIGN_OR_RETURN(const bool room, cuda::PollUntil(has_room, deadline));
  if (room) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("the device has ", kMostInFlight, " operations to do, and does not begin more"));
}

absl::StatusOr<bool> NcclCommunicator::LookAtFlight() {
  COHORT_ASSIGN_OR_RETURN(const std::optional<NcclFlight::First> first, flight_.Look());
  if (!first.has_value()) return false;
  const absl::Status health = clique_->TryHealth();
  if (!health.ok()) {
    return absl::Status(health.code(), absl::StrCat(Describe(first->work), ": ", health.message()));
  }
  if (!first->late) return true;
  return absl::DeadlineExceededError(absl::StrCat(Describe(first->work), ": it has run for ",
                                                  absl::FormatDuration(first->ran),
                                                  " and is not done"));
}

absl::Status NcclCommunicator::Check() {
  COHORT_RETURN_IF_ERROR(Stand());
  const absl::Status status = LookAtFlight().status();
  if (status.ok()) return status;
  Break(status).IgnoreError();
  return Broken();
}

absl::Status NcclCommunicator::Await(Instant deadline) {
  int looks = 0;
  const auto is_done = [&]() -> absl::StatusOr<bool> {
    if (++looks % kLooksAlone == 1) COHORT_RETURN_IF_ERROR(Check());
    COHORT_RETURN_IF_ERROR(Broken());
    const absl::StatusOr<std::optional<NcclFlight::First>> first = flight_.Look();
    return first.ok() ? !first->has_value() : absl::StatusOr<bool>(Break(first.status()));
  };
  COHORT_ASSIGN_OR_RETURN(const bool done, cuda::PollUntil(is_done, deadline));
  // What was forgotten, since the group ended, is not done.
  if (done) return Broken();
  const absl::StatusOr<std::optional<NcclFlight::First>> first = flight_.Look();
  if (!first.ok()) return Break(first.status());
  if (!first->has_value()) return Broken();
  return absl::DeadlineExceededError(absl::StrCat(
      Describe((*first)->work),
      (*first)->runs ? absl::StrCat(" runs for ", absl::FormatDuration((*first)->ran), " already")
                     : " waits behind other work of its stream"));
}

}  // namespace cohort::worker
