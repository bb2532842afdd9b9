// A call that blocks and reports meanwhile why it waits: for which members, or because the
// coordinator does not serve it.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_MONITORED_CALL_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_MONITORED_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/call.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/report/report.h"

namespace cohort::client {

// The health of one call at the coordinator: whether it is served, refused or unanswered.
// Thread-safe; borrows the connection.
class CallHealth {
 public:
  // `may_wait`: an answer may take as long as the call.
  CallHealth(ConnectionImpl& connection, Instant deadline, bool may_wait)
      : connection_(connection), deadline_(deadline), may_wait_(may_wait) {}

  // As CallLimits::on_repeat.
  void OnRepeat(const grpc::Status& failure, absl::Duration pause);
  // False, after a call of on_away, when the coordinator does not serve the call now.
  bool Served();
  // The coordinator gave no answer to another call either.
  void NotifySilent(absl::string_view detail) { Notify(AwayKind::kSilent, std::string(detail)); }

 private:
  void Notify(AwayKind kind, std::string detail) const;

  ConnectionImpl& connection_;
  const Instant deadline_;
  const bool may_wait_;

  Mutex mutex_;
  grpc::Status failure_ ABSL_GUARDED_BY(mutex_);
  Instant refused_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Like CallBlocking. About each second it calls a function on this thread. While the coordinator
// does not serve the call, that is the connection's `on_away`. Otherwise it is `ask`, which asks
// the coordinator what the call waits for and returns its own status. Both may be empty.
// `cancellation` may be null.
template <typename M>
absl::Status CallMonitored(ConnectionImpl& connection, const M& method, CallLimits limits,
                           Interruption& interruption, typename M::Request& request,
                           typename M::Response* response,
                           const std::function<absl::Status()>& ask = nullptr,
                           Cancellation* cancellation = nullptr) {
  if (cancellation != nullptr) COHORT_RETURN_IF_ERROR(cancellation->reason());
  const bool needs_no_reports = !connection.options().on_away && !ask && cancellation == nullptr;
  // On its own thread the connection cannot run the tasks that this call would wait for.
  if (needs_no_reports || connection.timers().OnThread()) {
    return CallBlocking(connection, method, std::move(limits), interruption, request, response);
  }
  // This thread calls on_away and `ask`, so another thread gets the answer.
  struct Answer {
    Answer(ConnectionImpl& connection, const CallLimits& limits)
        : health(connection, limits.deadline,
                 HasWait<typename M::Request>::value && limits.wait_until > absl::InfinitePast()) {}
    CallHealth health;
    Mutex mutex;
    bool here ABSL_GUARDED_BY(mutex) = false;
    bool released ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
    typename M::Response response ABSL_GUARDED_BY(mutex);
  };
  auto answer = std::make_shared<Answer>(connection, limits);
  limits.use_framed_rpc = limits.use_framed_rpc && !framed_rpc::ClientEventLoop().InLoop();
  limits.on_repeat = [answer](const grpc::Status& failure, absl::Duration pause) {
    answer->health.OnRepeat(failure, pause);
  };
  // The thread that brings the answer must not be the last to let go of the connection: the
  // caller's process may be ending by then, and gRPC with it.
  std::shared_ptr<ConnectionImpl> lent(
      &connection, [answer, kept = connection.shared_from_this()](ConnectionImpl*) mutable {
        kept.reset();
        MutexLock lock(&answer->mutex);
        answer->released = true;
      });
  const auto let_go = [&answer](std::shared_ptr<AsyncCall<M>>& call) {
    call.reset();
    MutexLock lock(&answer->mutex);
    answer->mutex.AwaitWithTimeout(absl::Condition(&answer->released), absl::Seconds(1));
  };
  auto call =
      std::make_shared<AsyncCall<M>>(std::move(lent), method, std::move(limits), request,
                                     [answer](absl::Status status, typename M::Response& arrived) {
                                       MutexLock lock(&answer->mutex);
                                       answer->status = std::move(status);
                                       answer->response.Swap(&arrived);
                                       answer->here = true;
                                     });
  call->Start();
  // Borrows the call, and so goes before it.
  std::optional<Cancellation::Listener> cancel;
  if (cancellation != nullptr) {
    cancel.emplace(*cancellation, [call = call.get()](const absl::Status&) { call->Cancel(); });
  }
  while (true) {
    bool here = false;
    {
      MutexLock lock(&answer->mutex);
      here = answer->mutex.AwaitWithTimeout(absl::Condition(&answer->here), absl::Seconds(1));
    }
    if (here) {
      cancel.reset();
      let_go(call);
      MutexLock lock(&answer->mutex);
      response->Swap(&answer->response);
      if (cancellation != nullptr && absl::IsCancelled(answer->status)) {
        COHORT_RETURN_IF_ERROR(cancellation->reason());
      }
      return answer->status;
    }
    if (!answer->health.Served()) {
      if (absl::Status reason = interruption.reason(); !reason.ok()) {
        call->Cancel();
        cancel.reset();
        let_go(call);
        return reason;
      }
    } else if (ask) {
      const absl::Status asked = ask();
      if (absl::IsUnavailable(asked)) answer->health.NotifySilent("");
    }
  }
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_MONITORED_CALL_H_
