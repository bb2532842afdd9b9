#include "worker/communicator/nccl/nccl_communicator.h"

#include <optional>
#include <random>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/nccl/api/nccl_error.h"
#include "worker/communicator/nccl/clique/nccl_device_lock.h"
#include "worker/communicator/nccl/nccl_call.h"
#include "worker/cuda/streams/poll_until.h"

namespace cohort::worker {

absl::StatusOr<std::unique_ptr<NcclCommunicator>> NcclCommunicator::Form(NcclCommunicatorInit init,
                                                                         Instant deadline) {
  NcclCliqueOptions options;
  options.device = init.device;
  options.rank = init.host->rank();
  options.size = init.host->size();
  options.ids = init.ids;
  options.name = init.name;
  if (init.operation_log != nullptr && init.operation_log->ranks() != options.size) {
    return absl::InvalidArgumentError(absl::StrCat("an operation log for ",
                                                   init.operation_log->ranks(),
                                                   " ranks in a group of ", options.size));
  }
  COHORT_ASSIGN_OR_RETURN(cuda::Stream stream, cuda::Stream::Create(init.device));
  COHORT_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(init.device));
  COHORT_ASSIGN_OR_RETURN(NcclOperationLog own_log, NcclOperationLog::Create(options.size));
  auto result = absl::WrapUnique(new NcclCommunicator(std::move(init), std::move(own_log),
                                                      std::move(stream), std::move(done)));
  absl::StatusOr<std::unique_ptr<NcclClique>> clique =
      NcclClique::Form(result->nccl_, options, deadline, [&] { return result->Standing(); });
  if (!clique.ok()) {
    // Others wait for this rank in vain.
    result->host_->Abort(absl::StrCat("rank ", result->rank(),
                                      " could not form NCCL's group: ", clique.status().message()));
    return clique.status();
  }
  result->clique_ = *std::move(clique);
  COHORT_RETURN_IF_ERROR(result->AgreeOnInit(deadline));
  return result;
}

NcclCommunicator::NcclCommunicator(NcclCommunicatorInit init, NcclOperationLog own_log,
                                   cuda::Stream stream, cuda::Event done)
    : nccl_(std::move(init.nccl)),
      compute_capability_(init.compute_capability),
      host_(init.host),
      stream_(std::move(stream)),
      done_(std::move(done)),
      mode_(init.agreement),
      issuing_group_(init.device),
      progress_(init.progress),
      operation_log_(init.operation_log != nullptr
                         ? init.operation_log
                         : std::make_shared<const NcclOperationLog>(std::move(own_log))),
      log_is_shared_(init.operation_log != nullptr),
      agreement_(host_, operation_log_.get()),
      flight_(init.device, init.progress) {}

NcclCommunicator::~NcclCommunicator() {
  NcclWatchdog::OfProcess().Forget(this);
  // NCCL ends the operations in flight, or leaves them.
  clique_.reset();
  flight_.Look().IgnoreError();
  flight_.Clear(absl::StatusCode::kCancelled);
}

absl::Status NcclCommunicator::AgreeOnInit(Instant deadline) {
  const std::string modes[] = {"kOff", "kAsync", "kStrict"};
  const auto name = [&](int32_t given) {
    const auto mode = static_cast<size_t>(given / 2);
    return absl::StrCat(mode < 3 ? modes[mode] : "an unknown mode", ", ",
                        given % 2 == 0 ? "no operation log" : "an operation log");
  };
  struct Given {
    int32_t mode = 0;
    uint32_t key = 0;
  };
  static_assert(sizeof(Given) == 8);
  const Given own = {static_cast<int32_t>(mode_) * 2 + (log_is_shared_ ? 1 : 0),
                     std::random_device()()};
  std::vector<Given> all(static_cast<size_t>(size()));
  const absl::Status gathered =
      host_->AllGather(&own, all.data(), sizeof(own), DataType::kU8, deadline);
  if (!gathered.ok()) return Break(gathered);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank].mode == all[0].mode) continue;
    return absl::InvalidArgumentError(absl::StrCat("ranks form different groups: rank 0 ",
                                                   name(all[0].mode), "; rank ", rank, " ",
                                                   name(all[rank].mode)));
  }
  for (const Given& given : all) key_ = Mixed(key_, given.key);
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Broken() {
  MutexLock lock(&mutex_);
  if (broken_.ok() && log_is_shared_) broken_ = operation_log_->error();
  return broken_;
}

absl::Status NcclCommunicator::Standing() {
  COHORT_RETURN_IF_ERROR(Broken());
  if (size() == 1) return absl::OkStatus();
  // One peer at a time: the rank that ended the group tells all, and over shared memory any peer
  // shows it.
  looks_at_ = (looks_at_ + 1) % size();
  if (looks_at_ == rank()) return absl::OkStatus();
  return host_->HasMessage(looks_at_).status();
}

absl::Status NcclCommunicator::Stand() {
  const absl::Status status = Standing();
  // Operations in flight here would wait for ranks that have given up.
  return status.ok() ? status : Break(status);
}

void NcclCommunicator::Abort(absl::string_view cause) {
  {
    MutexLock lock(&mutex_);
    if (broken_.ok()) broken_ = AbortError(cause);
  }
  operation_log_->Fail(AbortError(cause));
  // A thread that waits for the device notices, and ends the operation; so does the watchdog.
  host_->Abort(cause);
}

bool NcclCommunicator::IsBlamed(const absl::Status& status) const {
  return size() > 1 && !absl::IsDeadlineExceeded(status) && !IsDifference(status);
}

absl::Status NcclCommunicator::Blame(const absl::Status& status) {
  if (!IsBlamed(status)) return status;
  absl::Status cause;
  const auto heard = [&]() -> absl::StatusOr<bool> {
    cause = Standing();
    return !cause.ok();
  };
  const absl::StatusOr<bool> told = cuda::PollUntil(heard, Clock::Steady().Now() + kBlame);
  return told.ok() && *told ? cause : status;
}

absl::Status NcclCommunicator::Break(const absl::Status& status, NcclClique::Wait wait) {
  absl::Status cause = Broken();
  const absl::Status answer = cause.ok() ? status : cause;
  if (cause.ok()) {
    cause = absl::IsAborted(status) || IsDifference(status)
                ? status
                : absl::AbortedError(absl::StrCat("rank ", rank(), " gave up: ", status.message()));
    // If several ranks report at once, the first cause stays for all.
    operation_log_->Fail(cause);
    const absl::Status error = operation_log_->error();
    MutexLock lock(&mutex_);
    if (broken_.ok()) broken_ = error.ok() ? cause : error;
    cause = broken_;
  }
  host_->Abort(cause.message());
  flight_.Clear(cause.code());
  if (clique_ != nullptr) clique_->Revoke(wait);
  return answer;
}

absl::Status NcclCommunicator::Run(const FlatCall& call, const void* input, void* output,
                                   Instant deadline) {
  if (call.collective == Collective::kBarrier) return RunBarrier(call, deadline);
  COHORT_RETURN_IF_ERROR(CheckArguments(call, rank(), size(), input, output));
  COHORT_ASSIGN_OR_RETURN(const NcclOperands operands,
                          OperandsOf(call, compute_capability_, size()));
  COHORT_RETURN_IF_ERROR(Stand());
  const OperationLogLine line = LineFor(call, input, output);
  COHORT_RETURN_IF_ERROR(HostBarrier(line, false, deadline));
  const int64_t sequence = Post(line, false);
  if (call.count == 0) return absl::OkStatus();
  NcclWork work;
  work.sequence = sequence;
  work.call = call;
  return RunPosted(work, deadline,
                   [&] { return Issue(call, operands, input, output, stream_.get(), deadline); });
}

absl::Status NcclCommunicator::RunPosted(const NcclWork& work, Instant deadline,
                                         absl::FunctionRef<absl::Status()> issue) {
  absl::Status status;
  {
    COHORT_ASSIGN_OR_RETURN(const auto ticket, TakeTicket(HasHostBarrier(false), deadline));
    status = issue();
  }
  if (!status.ok()) return Break(Blame(status));
  operation_log_->Advance(rank(), {work.sequence, 0});
  status = AwaitDevice(work, deadline);
  if (!status.ok()) return Break(Blame(status));
  operation_log_->Advance(rank(), {work.sequence, work.sequence});
  return status;
}

OperationLogLine NcclCommunicator::LineFor(const FlatCall& call, const void* input,
                                           const void* output) const {
  OperationLogLine line = LineOf(call);
  line.registered = Registered(call, input, output);
  return line;
}

absl::Status NcclCommunicator::HostBarrier(const OperationLogLine& line, bool on_stream,
                                           Instant deadline) {
  if (!HasHostBarrier(on_stream)) return absl::OkStatus();
  const absl::Status status =
      agreement_.OnOperation(line, issuing_group_.is_one_of_many(), deadline);
  return status.ok() || IsMismatch(status) ? status : Break(status);
}

absl::StatusOr<std::optional<IssueOrder::Ticket>> NcclCommunicator::TakeTicket(bool arrived,
                                                                               Instant deadline) {
  if (!arrived || !agreement_.is_device_shared()) return std::nullopt;
  std::optional<IssueOrder::Ticket> ticket(issuing_group_.order().Propose(key_));
  const int64_t proposed = ticket->proposed();
  int64_t agreed = 0;
  absl::Status status =
      host_->AllReduce(&proposed, &agreed, 1, DataType::kI64, Reduction{ReduceOp::kMax}, deadline);
  if (status.ok())
    status = ticket->Await(
        agreed, [this] { return Standing(); }, deadline);
  if (status.ok()) return ticket;
  // Blame takes a moment, in which other groups go on.
  ticket.reset();
  return Break(Blame(status));
}

int64_t NcclCommunicator::Post(OperationLogLine line, bool on_stream) {
  line.on_stream = on_stream && mode_ == NcclAgreement::kAsync ? 1 : 0;
  if (mode_ != NcclAgreement::kOff) chain_ = Chained(chain_, line);
  operation_log_->Post(rank(), {line, chain_});
  return operation_log_->posted(rank());
}

absl::Status NcclCommunicator::Issue(const FlatCall& call, NcclOperands operands, const void* input,
                                     void* output, cudaStream_t stream, Instant deadline) {
  const char* const function = NcclFunction(call.collective);
  const bool scales = operands.op == ncclNumOps;
  COHORT_RETURN_IF_ERROR(RunIssued(function, deadline, [&] {
    if (scales) {
      const ncclResult_t made =
          MakeScaledSum(*nccl_, call, operands.type, clique_->comm(), &operands.op);
      if (made != ncclSuccess) return made;
    }
    return CallNccl(*nccl_, call, operands, input, output, clique_->comm(), stream);
  }));
  COHORT_RETURN_IF_ERROR(clique_->AwaitCalls(function, deadline, [this] { return Standing(); }));
  if (!scales) return absl::OkStatus();
  // This cannot happen sooner: a communicator in progress takes no other call.
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
  return NcclDeviceLock::Run(clique_->device(), deadline,
                             [&] { return NcclError(*nccl_, issue(), call); });
}

absl::Status NcclCommunicator::AwaitDevice(const NcclWork& work, Instant deadline) {
  COHORT_RETURN_IF_ERROR(done_.Record(stream_.get()));
  // No events here: a blocking operation is alone on its stream, and polled all the time.
  const Instant began = Clock::Steady().Now();
  const int64_t call = progress_ != nullptr ? progress_->Put() : 0;
  if (progress_ != nullptr) progress_->Begun(call, began);
  int looks = 0;
  const auto is_done = [&]() -> absl::StatusOr<bool> {
    COHORT_ASSIGN_OR_RETURN(const bool done, done_.Query());
    if (done || ++looks < kLooksAlone) return done;
    COHORT_RETURN_IF_ERROR(clique_->Health(deadline));
    COHORT_RETURN_IF_ERROR(Standing());
    return false;
  };
  const absl::StatusOr<bool> done = cuda::PollUntil(is_done, deadline);
  const bool in_time = done.ok() && *done;
  if (progress_ != nullptr) {
    const Instant now = Clock::Steady().Now();
    if (in_time) {
      progress_->Done(call, began, now);
    } else {
      progress_->GivenUp(
          call, done.ok() ? absl::StatusCode::kDeadlineExceeded : done.status().code(), now);
    }
  }
  if (in_time) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(done.status());
  return absl::DeadlineExceededError(absl::StrCat(
      Describe(work), ": ", mode_ == NcclAgreement::kOff ? "" : "all ranks have come, and ",
      "the devices do not finish", log_is_shared_ ? Others(work) : ""));
}

absl::Status NcclCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                                        MessageChannel channel) {
  if (channel == MessageChannel::kControl) return host_->Exchange(transfers, deadline, channel);
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank(), size()));
  COHORT_RETURN_IF_ERROR(Stand());
  bool posted = false;
  const auto post = [&](const std::vector<size_t>& ready) {
    posted = true;
    return IssueMessages(transfers, ready, stream_.get(), deadline);
  };
  absl::Status agreed;
  if (mode_ == NcclAgreement::kOff) {
    const std::vector<size_t> filled = FilledIndices(transfers);
    if (filled.empty()) return absl::OkStatus();
    const absl::Status issued = post(filled);
    if (!issued.ok()) return Break(Blame(issued));
  } else {
    agreed = agreement_.OnTransfers(transfers, deadline, post);
    if (!agreed.ok() && !absl::IsInvalidArgument(agreed)) return Break(Blame(agreed));
  }
  if (!posted) return agreed;
  NcclWork work;
  work.messages = transfers.size();
  work.message = transfers[0];
  const absl::Status done = AwaitDevice(work, deadline);
  return done.ok() ? agreed : Break(Blame(done));
}

absl::Status NcclCommunicator::RunBarrier(const FlatCall& call, Instant deadline) {
  COHORT_RETURN_IF_ERROR(Stand());
  if (mode_ != NcclAgreement::kOff) {
    return HostBarrier(LineOf(call), false, deadline);
  }
  const absl::Status status = host_->Run(call, nullptr, nullptr, deadline);
  return status.ok() || IsMismatch(status) ? status : Break(status);
}

}  // namespace cohort::worker
