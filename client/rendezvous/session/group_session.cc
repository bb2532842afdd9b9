#include "client/rendezvous/session/group_session.h"

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/client/client_event_loop.h"
#include "base/threads/notification.h"
#include "client/rendezvous/session/group_watch.h"

namespace cohort::client {
namespace {

// How long a destructor waits for the answer to Leave.
constexpr absl::Duration kGoodbye = absl::Seconds(1);
constexpr absl::Duration kReportInterval = absl::Seconds(1);

// The open wait with the name `what`; else the oldest of the same kind; else null.
const v1::OpenWait* FindWait(const v1::WhoIsMissingResponse& response, absl::string_view what) {
  const absl::string_view kind = what.substr(0, what.find(' '));
  const v1::OpenWait* same_kind = nullptr;
  for (const v1::OpenWait& wait : response.waits()) {
    if (wait.operation() == what) return &wait;
    const absl::string_view operation = wait.operation();
    if (same_kind == nullptr && operation.substr(0, operation.find(' ')) == kind) same_kind = &wait;
  }
  return same_kind;
}

}  // namespace

GroupSession::GroupSession(std::shared_ptr<ConnectionImpl> connection, std::string group,
                           std::string member, std::function<void(const GroupEvent&)> on_event,
                           absl::Duration progress_timeout,
                           std::function<TensorReport()> report_tensors)
    : connection_(std::move(connection)),
      group_(std::move(group)),
      member_(std::move(member)),
      on_event_(std::move(on_event)),
      progress_timeout_(progress_timeout),
      report_tensors_(std::move(report_tensors)),
      watch_backoff_(connection_->options().min_backoff, connection_->options().max_backoff) {}

Membership GroupSession::membership() const {
  MutexLock lock(&mutex_);
  return membership_;
}

RankPosition GroupSession::position() const {
  MutexLock lock(&mutex_);
  return membership_;
}

int64_t GroupSession::max_inline_bytes() const {
  MutexLock lock(&mutex_);
  return membership_.max_inline_bytes;
}

absl::Status GroupSession::FillScope(const CallSpec& spec, v1::Scope* scope) {
  MutexLock lock(&mutex_);
  if (!ended_.ok()) return ended_;
  if (!broken_.ok() && !spec.in_any_state) return broken_;
  scope->set_tenant(connection_->options().tenant);
  scope->set_group(group_);
  if (!spec.any_generation && scope->generation() == 0)
    scope->set_generation(membership_.generation);
  if (!spec.new_life) scope->set_session(membership_.session);
  if (!spec.read && scope->operation_id().empty()) {
    scope->set_operation_id(connection_->NewOperationId());
  }
  return absl::OkStatus();
}

CallLimits GroupSession::Limits(const CallSpec& spec) const {
  CallLimits limits{spec.what, spec.deadline};
  limits.interruption = interruption_;
  return limits;
}

absl::Status GroupSession::Begin(const CallSpec& spec, v1::Scope* scope) {
  COHORT_RETURN_IF_ERROR(FillScope(spec, scope));
  MutexLock lock(&mutex_);
  // Reads need no member, so the coordinator takes no acknowledgements from them.
  if (!spec.read && scope->generation() == membership_.generation) receipts_.Ride(scope);
  return absl::OkStatus();
}

void GroupSession::Register(const std::shared_ptr<Cancellable>& call, const CallSpec& spec,
                            const std::shared_ptr<RegisteredCall>& registered) {
  registered->call = call;
  if (!calls_.Add(call)) call->Cancel();
  if (spec.cancellation == nullptr) return;
  registered->cancellation = spec.cancellation;
  registered->on_cancel.emplace(*spec.cancellation,
                                [call](const absl::Status& /*reason*/) { call->AskToCancel(); });
}

void GroupSession::Unregister(RegisteredCall& registered, absl::Status* status) {
  calls_.Remove(registered.call);
  registered.call.reset();
  registered.on_cancel.reset();
  if (registered.cancellation == nullptr || !absl::IsCancelled(*status)) return;
  if (absl::Status reason = registered.cancellation->reason(); !reason.ok()) {
    *status = std::move(reason);
  }
}

void GroupSession::Finish(const v1::Scope& scope, const absl::Status& status, bool takes) {
  const bool is_lost = takes && Receipts::MayBeLost(status);
  if (status.ok() || (!is_lost && !Receipts::HasAny(scope))) return;
  MutexLock lock(&mutex_);
  // Receipts of an ended generation mean nothing in the next.
  if (scope.generation() != membership_.generation || !ended_.ok()) return;
  receipts_.Return(scope);
  if (!is_lost) return ScheduleFlushLocked();
  AbandonLocked(scope.operation_id());
}

void GroupSession::Abandon(int64_t generation, const std::string& operation) {
  MutexLock lock(&mutex_);
  if (generation == membership_.generation && ended_.ok()) AbandonLocked(operation);
}

void GroupSession::AbandonLocked(const std::string& operation) {
  receipts_.Abandon(operation);
  if (std::exchange(flush_scheduled_, true)) return;
  connection_->timers().Post([weak = weak_from_this()] {
    if (auto self = weak.lock()) self->FlushReceipts();
  });
}

absl::Status GroupSession::ReportWaiting(const CallSpec& spec) {
  v1::WhoIsMissingRequest request;
  request.mutable_scope()->set_tenant(connection_->options().tenant);
  request.mutable_scope()->set_group(group_);
  v1::WhoIsMissingResponse response;
  CallLimits limits{"WhoIsMissing", Clock::Steady().Now() + kReportInterval};
  limits.repeat = false;
  const absl::Status status =
      CallBlocking(*connection_, method::kWhoIsMissing, std::move(limits), *interruption_,
                   CallCancellations(spec.cancellation.get()), request, &response);
  if (!status.ok()) return status;  // the report is missing; the call itself goes on
  if (const v1::OpenWait* wait = FindWait(response, spec.what); wait != nullptr) {
    (*spec.on_waiting)(FromProto(wait->missing()));
  }
  return absl::OkStatus();
}

RoundTicket GroupSession::TakeNumber(const std::string& name) {
  MutexLock lock(&mutex_);
  return RoundTicket{name, numbers_.Take(name), membership_.generation};
}

void GroupSession::ReturnNumber(const RoundTicket& ticket, const v1::RoundResult* result) {
  MutexLock lock(&mutex_);
  if (ticket.generation != membership_.generation) return;
  if (result == nullptr) {
    numbers_.GiveBack(ticket.name, ticket.number);
  } else {
    numbers_.Continue(ticket.name, ticket.number, result->next_number());
  }
}

void GroupSession::AddReceipt(int64_t generation, int64_t receipt) {
  if (receipt == 0) return;
  MutexLock lock(&mutex_);
  if (generation != membership_.generation || !ended_.ok()) return;
  receipts_.Add(receipt);
  ScheduleFlushLocked();
}

void GroupSession::ScheduleFlushLocked() {
  if (std::exchange(flush_scheduled_, true)) return;
  connection_->timers().After(absl::Seconds(1), [weak = weak_from_this()] {
    if (auto self = weak.lock()) self->FlushReceipts();
  });
}

void GroupSession::Adopt(Membership membership) {
  {
    MutexLock lock(&mutex_);
    if (!ended_.ok()) return;
    if (membership.generation != membership_.generation ||
        membership.session != membership_.session) {
      numbers_.Clear();
      receipts_.Clear();
    }
    membership_ = std::move(membership);
    broken_ = absl::OkStatus();
    // A surviving member goes on with its numbers, unless the coordinator began to count anew.
    watched_revision_ = lease_epoch_ == 0 ? membership_.revision
                                          : std::min(watched_revision_, membership_.revision);
    ++lease_epoch_;
    ScheduleLeaseLocked();
  }
  OpenWatch();
}

void GroupSession::AdoptView(const RankPosition& position) {
  MutexLock lock(&mutex_);
  if (position.generation <= membership_.generation) return;
  numbers_.Clear();
  receipts_.Clear();
  static_cast<RankPosition&>(membership_) = position;
  broken_ = absl::OkStatus();
  if (position.rank < 0) {
    broken_ = absl::AbortedError(
        absl::StrCat("group ", group_, ": this member is not in generation ", position.generation));
  }
}

void GroupSession::SetProgress(int64_t counter, absl::string_view operation) {
  MutexLock lock(&mutex_);
  progress_ = counter;
  progress_operation_.assign(operation.data(), std::min<size_t>(operation.size(), 128));
}

void GroupSession::End(absl::Status reason) {
  std::shared_ptr<GroupWatch> watch;
  {
    MutexLock lock(&mutex_);
    if (!ended_.ok()) return;
    ended_ = reason;
    ++lease_epoch_;
    receipts_.Clear();
    watch.swap(watch_);
  }
  interruption_->Raise(std::move(reason));
  if (watch != nullptr) watch->Cancel();
}

void GroupSession::Destroy(absl::string_view reason) {
  bool goodbye = false;
  {
    MutexLock lock(&mutex_);
    goodbye = ended_.ok() && !membership_.session.empty();
  }
  if (goodbye) {
    v1::LeaveRequest request;
    request.set_reason(std::string(reason.substr(0, 512)));
    CallSpec spec;
    spec.what = "leave";
    spec.in_any_state = true;
    if (Begin(spec, request.mutable_scope()).ok()) {
      CallLimits limits{spec.what, Clock::Steady().Now() + kGoodbye};
      // That thread would wait for itself.
      limits.use_framed_rpc =
          !framed_rpc::ClientEventLoop().InLoop() && connection_->framed_channel().ready();
      limits.repeat = false;  // if this request fails, the lease ends the membership
      auto notified = std::make_shared<Notification>();
      std::make_shared<AsyncCall<decltype(method::kLeave)>>(
          connection_, method::kLeave, std::move(limits), std::move(request),
          [notified](const absl::Status&, v1::LeaveResponse&) { notified->Notify(); })
          ->Start();
      notified->WaitWithTimeout(kGoodbye);
    }
  }
  // First, so that no call in flight is told that its member has left.
  calls_.CancelAll();
  End(absl::FailedPreconditionError(absl::StrCat("group ", group_, ": this member has left")));

  // A running on_event may use objects that its owner is about to destroy. If on_event itself
  // destroys this session, it may not wait for itself.
  MutexLock lock(&mutex_);
  if (event_thread_ == std::this_thread::get_id()) return;
  mutex_.Await(absl::Condition(
      +[](std::thread::id* running) { return *running == std::thread::id(); }, &event_thread_));
}

}  // namespace cohort::client
