#include "client/rendezvous/call/unary_call.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/framed_rpc/client/client_event_loop.h"
#include "base/rpc/grpc_deadline.h"
#include "base/threads/hooked_call.h"
#include "client/rendezvous/call/call_health.h"
#include "client/rendezvous/call/framed_request.h"
#include "grpcpp/client_context.h"

namespace cohort::client {
namespace {

using google::protobuf::MessageLite;

constexpr absl::Duration kReportInterval = absl::Seconds(1);
// How long a cancelled call waits for the coordinator's reply.
constexpr absl::Duration kCancelPatience = absl::Seconds(1);
// How long a call waits at most for a connection that is being made, before it goes by gRPC.
constexpr absl::Duration kConnecting = absl::Seconds(2);

grpc::Status ParseFrameBody(absl::string_view body, MessageLite* response) {
  if (response->ParseFromArray(body.data(), static_cast<int>(body.size()))) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::INTERNAL, "the answer is not a message of this method");
}

class BlockingWaiter final : public framed_rpc::ClientConnection::Waiter {
 public:
  BlockingWaiter(MessageLite* response, grpc::Status* status)
      : response_(response), status_(status) {}
  void OnReply(const grpc::Status& status, absl::string_view body) override {
    *status_ = status.ok() ? ParseFrameBody(body, response_) : status;
  }

 private:
  MessageLite* const response_;
  grpc::Status* const status_;
};

// Returns false, and has done nothing, if there is no framed RPC connection.
bool CallByFramedRpc(const framed_rpc::Route& route, const MessageLite& request,
                     absl::Duration timeout, const CallCancellations& cancellations,
                     MessageLite* response, grpc::Status* status) {
  if (route.connection == nullptr) return false;
  BlockingWaiter waiter(response, status);
  framed_rpc::ClientConnection::BlockingCall call(waiter);
  if (!route.connection->Begin(route.method, MakeFrame(request), timeout, call)) return false;
  const CallCancellations::Listener listener(cancellations,
                                             [&] { route.connection->Cancel(call.id()); });
  route.connection->Await(call);
  return true;
}

void CancelFramed(const framed_rpc::Route& route, uint32_t id, absl::Duration patience) {
  if (patience > absl::ZeroDuration()) {
    route.connection->AskToCancel(id, patience);
  } else {
    route.connection->Cancel(id);
  }
}

// Waits while a framed RPC connection is being made.
void AwaitSettled(framed_rpc::Channel& channel, absl::Duration longest,
                  const CallCancellations& cancellations) {
  if (channel.ready()) return;
  struct Settled {
    Mutex mutex;
    bool done ABSL_GUARDED_BY(mutex) = false;
  };
  const auto settled = std::make_shared<Settled>();
  const auto end = [settled] {
    MutexLock lock(&settled->mutex);
    settled->done = true;
  };
  if (!channel.WhenSettled(end)) return;
  const CallCancellations::Listener listener(cancellations, end);
  MutexLock lock(&settled->mutex);
  settled->mutex.AwaitWithTimeout(absl::Condition(&settled->done), longest);
}

// Begins an attempt, and returns how long it may take.
absl::Duration BeginAttempt(const MethodInfo& method, CallRetries& retries, MessageLite& request) {
  const CallRetries::Attempt attempt = retries.Begin();
  if (method.set_wait == nullptr || attempt.wait == absl::ZeroDuration()) return attempt.timeout;
  method.set_wait(attempt.wait, request);
  return attempt.timeout + kDeadlineMargin;
}

}  // namespace

absl::Status CallBlocking(ConnectionImpl& connection, const MethodInfo& method, CallLimits limits,
                          Interruption& interruption, const CallCancellations& cancellations,
                          MessageLite& request, MessageLite* response) {
  CallRetries retries(connection.options(), std::move(limits));
  while (true) {
    COHORT_RETURN_IF_ERROR(cancellations.reason());
    // A callback that blocks, as it should not, must not wait for the thread it runs on.
    const bool framed = retries.use_framed_rpc() && !framed_rpc::ClientEventLoop().InLoop();
    if (framed) {
      AwaitSettled(connection.framed_channel(), std::min(retries.time_left() / 2, kConnecting),
                   cancellations);
    }
    const absl::Duration timeout = BeginAttempt(method, retries, request);
    grpc::Status status;
    if (!framed || !CallByFramedRpc(connection.framed_channel().RouteOf(method.path), request,
                                    timeout, cancellations, response, &status)) {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(timeout));
      const CallCancellations::Listener listener(cancellations, [&] { context.TryCancel(); });
      RunHooked([&] { status = method.call(connection.stubs(), &context, request, response); });
    }
    if (status.ok()) return absl::OkStatus();
    COHORT_RETURN_IF_ERROR(cancellations.reason());
    absl::Status result;
    const std::optional<absl::Duration> pause = retries.Judge(connection.Explain(status), &result);
    if (!pause.has_value()) return result;
    COHORT_RETURN_IF_ERROR(interruption.Sleep(*pause, cancellations));
    response->Clear();
  }
}

void UnaryCall::Start() {
  {
    MutexLock lock(&mutex_);
    pause_ = 0;
  }
  if (Cancelled()) return OnDone(OwnerGone());
  if (!retries_.use_framed_rpc() || !AwaitConnection()) StartAttempt();
}

bool UnaryCall::AwaitConnection() {
  if (connection_->framed_channel().ready()) return false;
  {
    MutexLock lock(&mutex_);
    if (cancelled_) return false;
    connecting_ = true;
  }
  // The channel must not keep a call that has ended meanwhile.
  const bool waits = connection_->framed_channel().WhenSettled([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->OnSettled();
  });
  MutexLock lock(&mutex_);
  // Without connecting_, Cancel has come meanwhile, and ends the call.
  if (!waits) return !std::exchange(connecting_, false);
  if (connecting_) {
    pause_ = connection_->timers().After(std::min(retries_.time_left() / 2, kConnecting),
                                         [self = shared_from_this()] { self->OnSettled(); });
  }
  return true;
}

void UnaryCall::OnSettled() {
  {
    MutexLock lock(&mutex_);
    if (!std::exchange(connecting_, false)) return;
    connection_->timers().Cancel(std::exchange(pause_, 0));
  }
  StartAttempt();
}

void UnaryCall::StartAttempt() {
  if (Cancelled()) return OnDone(OwnerGone());
  const absl::Duration timeout = BeginAttempt(method_, retries_, *request_);
  response_->Clear();
  if (retries_.use_framed_rpc() && StartByFramedRpc(timeout)) return;
  StartByGrpc(timeout);
}

bool UnaryCall::StartByFramedRpc(absl::Duration timeout) {
  const framed_rpc::Route route = connection_->framed_channel().RouteOf(method_.path);
  if (route.connection == nullptr) return false;
  int attempt = 0;
  {
    MutexLock lock(&mutex_);
    attempt = attempt_;
  }
  std::shared_ptr<UnaryCall> self = shared_from_this();
  uint32_t id = 0;
  if (!route.connection->Start(route.method, MakeFrame(*request_), timeout,
                               std::shared_ptr<framed_rpc::ClientConnection::Waiter>(self, this),
                               &id)) {
    return false;
  }
  bool cancelled = false;
  absl::Duration patience;
  {
    MutexLock lock(&mutex_);
    // Else the answer has come before this.
    if (attempt == attempt_) {
      route_ = route;
      framed_call_id_ = id;
    }
    cancelled = cancelled_;
    patience = cancel_patience_;
  }
  if (cancelled) CancelFramed(route, id, patience);
  return true;
}

void UnaryCall::StartByGrpc(absl::Duration timeout) {
  auto context = std::make_shared<grpc::ClientContext>();
  context->set_deadline(GrpcDeadline(timeout));
  {
    MutexLock lock(&mutex_);
    if (!cancelled_) context_ = context;
  }
  if (Cancelled()) return OnDone(OwnerGone());
  method_.start(
      connection_->stubs(), context.get(), request_, response_,
      [self = shared_from_this(), context](grpc::Status status) { self->OnAnswer(status); });
}

void UnaryCall::AskToCancel() { Cancel(kCancelPatience); }

void UnaryCall::Cancel(absl::Duration patience) {
  std::shared_ptr<grpc::ClientContext> context;
  framed_rpc::Route route;
  uint32_t framed_call_id = 0;
  uint64_t pause = 0;
  bool connecting = false;
  {
    MutexLock lock(&mutex_);
    connecting = std::exchange(connecting_, false);
    cancelled_ = true;
    cancel_patience_ = patience;
    context = context_;
    route = route_;
    framed_call_id = framed_call_id_;
    pause = pause_;
  }
  // Later, because the answer may come in that very call.
  if (context != nullptr) connection_->timers().Post([context] { context->TryCancel(); });
  // Now, so that it reaches the coordinator before later calls of this thread.
  if (route.connection != nullptr) CancelFramed(route, framed_call_id, patience);
  if ((pause != 0 && connection_->timers().Cancel(pause)) || connecting) {
    connection_->timers().Post([self = shared_from_this()] { self->OnDone(OwnerGone()); });
  }
}

void UnaryCall::OnReply(const grpc::Status& status, absl::string_view body) {
  const grpc::Status result = status.ok() ? ParseFrameBody(body, response_) : status;
  // This thread reads for others, and may be that of a caller that blocks: callbacks come later.
  framed_rpc::ClientEventLoop().Post(
      [self = shared_from_this(), result] { self->OnAnswer(result); });
}

bool UnaryCall::Cancelled() {
  MutexLock lock(&mutex_);
  return cancelled_;
}

void UnaryCall::OnAnswer(const grpc::Status& status) {
  absl::Status result;
  std::optional<absl::Duration> pause;
  if (!status.ok()) pause = retries_.Judge(connection_->Explain(status), &result);
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    ++attempt_;
    context_.reset();
    route_ = framed_rpc::Route();
    cancelled = cancelled_;
    if (pause.has_value() && !cancelled) {
      pause_ = connection_->timers().After(*pause, [self = shared_from_this()] { self->Start(); });
      return;
    }
  }
  OnDone(cancelled && !status.ok() ? OwnerGone() : result);
}

struct CallMonitor::Answer {
  Answer(ConnectionImpl& connection, Instant deadline, bool may_wait)
      : health(connection, deadline, may_wait) {}

  CallHealth health;
  Mutex mutex;
  bool here ABSL_GUARDED_BY(mutex) = false;
  bool released ABSL_GUARDED_BY(mutex) = false;
  absl::Status status ABSL_GUARDED_BY(mutex);
};

bool CallMonitor::IsNeeded() const {
  // On its own thread the connection cannot run the tasks that this call would wait for.
  return (connection_.options().on_away || ask_) && !connection_.timers().OnThread();
}

std::shared_ptr<ConnectionImpl> CallMonitor::Prepare(const MethodInfo& method, CallLimits* limits) {
  const bool may_wait = method.set_wait != nullptr && limits->wait_until > absl::InfinitePast();
  auto answer = std::make_shared<Answer>(connection_, limits->deadline, may_wait);
  answer_ = answer;
  limits->use_framed_rpc = limits->use_framed_rpc && !framed_rpc::ClientEventLoop().InLoop();
  limits->on_repeat = [answer](const grpc::Status& failure, absl::Duration pause) {
    answer->health.OnRepeat(failure, pause);
  };
  return std::shared_ptr<ConnectionImpl>(
      &connection_, [answer, kept = connection_.shared_from_this()](ConnectionImpl*) mutable {
        kept.reset();
        MutexLock lock(&answer->mutex);
        answer->released = true;
      });
}

void CallMonitor::Notify(Answer& answer, absl::Status status) {
  MutexLock lock(&answer.mutex);
  answer.status = std::move(status);
  answer.here = true;
}

absl::Status CallMonitor::Run(UnaryCall& call, bool* answered) {
  call.Start();
  const CallCancellations::Listener listener(cancellations_, [&call] { call.Cancel(); });
  while (true) {
    absl::Status status;
    {
      MutexLock lock(&answer_->mutex);
      *answered = answer_->mutex.AwaitWithTimeout(absl::Condition(&answer_->here), kReportInterval);
      if (*answered) status = answer_->status;
    }
    if (*answered) {
      if (absl::IsCancelled(status)) COHORT_RETURN_IF_ERROR(cancellations_.reason());
      return status;
    }
    if (!answer_->health.Served()) {
      if (absl::Status reason = interruption_.reason(); !reason.ok()) {
        call.Cancel();
        return reason;
      }
    } else if (ask_) {
      if (absl::IsUnavailable(ask_())) answer_->health.NotifySilent("");
    }
  }
}

void CallMonitor::Release(std::shared_ptr<UnaryCall> call) {
  call.reset();
  MutexLock lock(&answer_->mutex);
  answer_->mutex.AwaitWithTimeout(absl::Condition(&answer_->released), absl::Seconds(1));
}

}  // namespace cohort::client
