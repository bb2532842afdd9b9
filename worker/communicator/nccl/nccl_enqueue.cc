// NcclCommunicator's operations on callers' streams, and the watch over them.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/clique/nccl_device_lock.h"
#include "worker/communicator/nccl/nccl_call.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/streams/poll_until.h"

namespace cohort::worker {
namespace {

// Each holds two events. CUDA itself takes about as many before it lets callers wait.
constexpr size_t kMostInFlight = 1024;

}  // namespace

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
  Break(status, NcclClique::Wait::kNot).IgnoreError();
  return false;
}

absl::Status NcclCommunicator::Enqueue(const FlatCall& call, const void* input, void* output,
                                       const NcclCallOptions& options, Instant deadline) {
  if (call.collective == Collective::kBarrier) {
    return absl::InvalidArgumentError("a barrier synchronizes the ranks' threads, not a stream");
  }
  COHORT_RETURN_IF_ERROR(CheckArguments(call, rank(), size(), input, output));
  COHORT_ASSIGN_OR_RETURN(const NcclOperands operands,
                          OperandsOf(call, compute_capability_, size()));
  COHORT_RETURN_IF_ERROR(Stand());
  const OperationLogLine line = LineFor(call, input, output);
  const auto agree = [&]() -> absl::StatusOr<int64_t> {
    // Ranks agree on the replay instead: a rank whose recording fails has not come to all of it.
    if (options.is_recorded) return 0;
    COHORT_RETURN_IF_ERROR(HostBarrier(line, true, deadline));
    return Post(line, true);
  };
  if (call.count == 0) {
    COHORT_RETURN_IF_ERROR(BeWatched());
    COHORT_RETURN_IF_ERROR(agree().status());
    NcclWatchdog::OfProcess().Watch(this);
    return absl::OkStatus();
  }
  NcclWork work;
  work.call = call;
  return Launch(work, options, deadline, agree,
                [&] { return Issue(call, operands, input, output, options.stream, deadline); });
}

absl::Status NcclCommunicator::Enqueue(absl::Span<const Transfer> transfers,
                                       const NcclCallOptions& options, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank(), size()));
  COHORT_RETURN_IF_ERROR(Stand());
  if (transfers.empty()) return absl::OkStatus();
  NcclWork work;
  work.messages = transfers.size();
  work.message = transfers[0];
  const auto no_meeting = []() -> absl::StatusOr<int64_t> { return 0; };
  const auto post = [&](const std::vector<size_t>& which) {
    return IssueMessages(transfers, which, options.stream, deadline);
  };
  if (mode_ != NcclAgreement::kStrict) {
    const std::vector<size_t> filled = FilledIndices(transfers);
    if (filled.empty()) return absl::OkStatus();
    return Launch(work, options, deadline, no_meeting, [&] { return post(filled); });
  }
  // Those that both sides call go, whatever becomes of the others.
  absl::Status agreed;
  const absl::Status launched = Launch(work, options, deadline, no_meeting, [&] {
    agreed = agreement_.OnTransfers(transfers, deadline, post);
    return absl::IsInvalidArgument(agreed) ? absl::OkStatus() : agreed;
  });
  return launched.ok() ? agreed : launched;
}

absl::Status NcclCommunicator::Refuse(absl::string_view why, Instant deadline) {
  COHORT_RETURN_IF_ERROR(Stand());
  COHORT_RETURN_IF_ERROR(BeWatched());
  OperationLogLine line = LineOfRefusal();
  COHORT_RETURN_IF_ERROR(HostBarrier(line, true, deadline));
  line.on_stream = mode_ == NcclAgreement::kAsync ? 1 : 0;
  if (mode_ != NcclAgreement::kOff) chain_ = Chained(chain_, line);
  operation_log_->PostRefusal(rank(), {line, chain_}, why);
  NcclWatchdog::OfProcess().Watch(this);
  return absl::OkStatus();
}

absl::Status NcclCommunicator::Enqueue(const NcclReplay& replay, const NcclCallOptions& options,
                                       Instant deadline) {
  COHORT_RETURN_IF_ERROR(Stand());
  const OperationLogLine line = LineOfReplay(replay.calls, replay.digest);
  NcclWork work;
  work.replayed = replay.calls;
  const auto agree = [&]() -> absl::StatusOr<int64_t> {
    COHORT_RETURN_IF_ERROR(HostBarrier(line, true, deadline));
    return Post(line, true);
  };
  return Launch(work, options, deadline, agree,
                [&] { return Issue(replay, options.stream, deadline); });
}

absl::Status NcclCommunicator::Run(const NcclReplay& replay, Instant deadline) {
  COHORT_RETURN_IF_ERROR(Stand());
  const OperationLogLine line = LineOfReplay(replay.calls, replay.digest);
  COHORT_RETURN_IF_ERROR(HostBarrier(line, false, deadline));
  NcclWork work;
  work.sequence = Post(line, false);
  work.replayed = replay.calls;
  return RunPosted(work, deadline, [&] { return Issue(replay, stream_.get(), deadline); });
}

absl::Status NcclCommunicator::Issue(const NcclReplay& replay, cudaStream_t stream,
                                     Instant deadline) {
  return NcclDeviceLock::Run(clique_->device(), deadline, [&] { return replay.launch(stream); });
}

absl::Status NcclCommunicator::Launch(NcclWork work, const NcclCallOptions& options,
                                      Instant deadline,
                                      absl::FunctionRef<absl::StatusOr<int64_t>()> agree,
                                      absl::FunctionRef<absl::Status()> issue) {
  // The default stream is that of the thread's device.
  COHORT_ASSIGN_OR_RETURN(const cuda::CurrentDevice current,
                          cuda::CurrentDevice::Set(clique_->device()));
  COHORT_RETURN_IF_ERROR(BeWatched());
  COHORT_RETURN_IF_ERROR(AwaitRoom(deadline));
  // A captured operation cannot be queried, and may run any number of times.
  COHORT_ASSIGN_OR_RETURN(const bool captured, cuda::IsCaptured(options.stream));
  std::optional<NcclInFlight::Marks> marks;
  if (!captured) {
    COHORT_ASSIGN_OR_RETURN(NcclInFlight::Marks taken, flight_.TakeMarks());
    COHORT_RETURN_IF_ERROR(taken.start.Record(options.stream));
    marks.emplace(std::move(taken));
  }
  // Up to here the group is as it was.
  COHORT_ASSIGN_OR_RETURN(work.sequence, agree());
  absl::Status status;
  {
    const bool has_barrier = work.messages == 0 && HasHostBarrier(true) && !options.is_recorded;
    COHORT_ASSIGN_OR_RETURN(const auto ticket, TakeTicket(has_barrier, deadline));
    status = issue();
  }
  if (status.ok() && !captured) status = marks->end.Record(options.stream);
  if (!status.ok()) return Break(Blame(status));
  if (!captured) flight_.Add(work, *std::move(marks), options.timeout);
  NcclWatchdog::OfProcess().Watch(this);
  return status;
}

absl::Status NcclCommunicator::BeWatched() {
  if (is_watched_) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(NcclWatchdog::OfProcess().Enlist(this));
  is_watched_ = true;
  return absl::OkStatus();
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

absl::Status NcclCommunicator::Suspected() {
  MutexLock lock(&mutex_);
  return suspected_;
}

absl::StatusOr<bool> NcclCommunicator::LookAtFlight() {
  {
    MutexLock lock(&mutex_);
    if (!suspected_.ok()) {
      if (Clock::Steady().Now() - suspected_at_ < kBlame) return true;
      return suspected_;
    }
  }
  absl::StatusOr<bool> found = FindInFlight();
  if (found.ok() || !IsBlamed(found.status())) return found;
  MutexLock lock(&mutex_);
  if (suspected_.ok()) {
    suspected_ = found.status();
    suspected_at_ = Clock::Steady().Now();
  }
  return true;
}

absl::StatusOr<bool> NcclCommunicator::FindInFlight() {
  COHORT_ASSIGN_OR_RETURN(const std::optional<NcclInFlight::First> first, flight_.Look());
  operation_log_->Advance(rank(), {flight_.started(), flight_.finished()});
  if (log_is_shared_ && mode_ != NcclAgreement::kOff) {
    const std::optional<NcclOperationLog::Difference> difference =
        operation_log_->FindDifference(rank());
    if (difference.has_value()) return DifferenceError(rank(), *difference);
  }
  if (!first.has_value()) return false;
  const absl::Status health = clique_->TryHealth();
  if (health.ok() && !first->late) return true;
  const std::string ran = first->runs
                              ? absl::StrCat("it has run for ", absl::FormatDuration(first->ran))
                              : "it waits behind other work";
  const std::string what = absl::StrCat(Describe(first->work), ": ", ran, Others(first->work));
  if (health.ok()) return absl::DeadlineExceededError(what);
  return absl::Status(health.code(), absl::StrCat(what, "; ", health.message()));
}

std::string NcclCommunicator::Others(const NcclWork& work) const {
  if (size() == 1 || work.messages > 0) return "";
  if (!log_is_shared_) return "; without an operation log, the missing ranks are not known";
  RankSet absent, waiting, inside;
  std::string last;
  for (int other = 0; other < size(); ++other) {
    if (other == rank()) continue;
    const NcclOperationLog::Progress progress = operation_log_->progress(other);
    const int64_t posted = operation_log_->posted(other);
    if (posted < work.sequence) {
      if (absent.Add(other) && absent.count() == 1) {
        const auto entry = operation_log_->Read(other, posted);
        last = entry.has_value() ? absl::StrCat(", rank ", other, " has come to operation ", posted,
                                                " and no further: ", Describe(entry->line))
                                 : "";
      }
    } else if (progress.started < work.sequence) {
      waiting.Add(other);
    } else if (progress.finished < work.sequence) {
      inside.Add(other);
    }
  }
  std::string text;
  if (!absent.empty()) {
    absl::StrAppend(&text, "; not come to it: ranks ", absent.ToString(), last);
  }
  if (!waiting.empty()) {
    absl::StrAppend(&text, "; not begun on their devices: ranks ", waiting.ToString());
  }
  if (!inside.empty()) absl::StrAppend(&text, "; not finished: ranks ", inside.ToString());
  return text;
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
    const absl::StatusOr<std::optional<NcclInFlight::First>> first = flight_.Look();
    if (first.ok() && Suspected().ok()) return !first->has_value();
    // Check returns the error in time.
    COHORT_RETURN_IF_ERROR(Check());
    return false;
  };
  COHORT_ASSIGN_OR_RETURN(const bool done, cuda::PollUntil(is_done, deadline));
  // Work that was dropped because the group ended is not done.
  if (done) return Broken();
  const absl::Status suspected = Suspected();
  if (!suspected.ok()) return Break(Blame(suspected));
  const absl::StatusOr<std::optional<NcclInFlight::First>> first = flight_.Look();
  if (!first.ok()) return Break(Blame(first.status()));
  if (!first->has_value()) return Broken();
  return absl::DeadlineExceededError(absl::StrCat(
      Describe((*first)->work),
      (*first)->runs ? absl::StrCat(" runs for ", absl::FormatDuration((*first)->ran), " already")
                     : " waits behind other work of its stream"));
}

}  // namespace cohort::worker
