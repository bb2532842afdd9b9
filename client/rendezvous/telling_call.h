// A call that blocks and reports meanwhile why it waits: for which members, or because the
// coordinator does not serve it.
#ifndef COHORT_CLIENT_RENDEZVOUS_TELLING_CALL_H_
#define COHORT_CLIENT_RENDEZVOUS_TELLING_CALL_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "client/rendezvous/call.h"
#include "client/rendezvous/cancellation.h"
#include "client/rendezvous/report.h"

namespace cohort::client {

// How a call fares at the coordinator. Thread-safe; borrows the connection.
class Fortune {
 public:
  // `may_wait`: an answer may take as long as the call.
  Fortune(ConnectionImpl& connection, Instant deadline, bool may_wait)
      : connection_(connection), deadline_(deadline), may_wait_(may_wait) {}

  // As CallLimits::on_repeat.
  void OnRepeat(const grpc::Status& refusal, absl::Duration pause);
  // False, and on_away was told, when the coordinator does not serve the call now.
  bool Served();
  // The coordinator gave no answer to another call either.
  void TellSilent(absl::string_view detail) { Tell(AwayKind::kSilent, std::string(detail)); }

 private:
  void Tell(AwayKind kind, std::string detail) const;

  ConnectionImpl& connection_;
  const Instant deadline_;
  const bool may_wait_;

  Mutex mutex_;
  grpc::Status refusal_ ABSL_GUARDED_BY(mutex_);
  Instant refused_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Like CallBlocking. About each second it calls a function on this thread. While the coordinator
// does not serve the call, that is the connection's `on_away`. Otherwise it is `ask`, which asks
// the coordinator what the call waits for and returns its own status. Both may be empty.
// `cancellation` may be null.
template <typename M>
absl::Status CallTelling(ConnectionImpl& connection, const M& method, CallLimits limits,
                         Interruption& interruption, typename M::Request& request,
                         typename M::Response* response,
                         const std::function<absl::Status()>& ask = nullptr,
                         Cancellation* cancellation = nullptr) {
  if (cancellation != nullptr) COHORT_RETURN_IF_ERROR(cancellation->reason());
  const bool nobody_listens = !connection.options().on_away && !ask && cancellation == nullptr;
  // On its own thread the connection cannot run the tasks that this call would wait for.
  if (nobody_listens || connection.timers().OnThread()) {
    return CallBlocking(connection, method, std::move(limits), interruption, request, response);
  }
  // This thread tells, so the answer comes to another.
  struct Answer {
    Answer(ConnectionImpl& connection, const CallLimits& limits)
        : fortune(connection, limits.deadline,
                  HasWait<typename M::Request>::value && limits.wait_until > absl::InfinitePast()) {
    }
    Fortune fortune;
    Mutex mutex;
    bool here ABSL_GUARDED_BY(mutex) = false;
    bool released ABSL_GUARDED_BY(mutex) = false;
    absl::Status status ABSL_GUARDED_BY(mutex);
    typename M::Response response ABSL_GUARDED_BY(mutex);
  };
  auto answer = std::make_shared<Answer>(connection, limits);
  limits.by_lane = limits.by_lane && !LaneLoop().InLoop();
  limits.on_repeat = [answer](const grpc::Status& refusal, absl::Duration pause) {
    answer->fortune.OnRepeat(refusal, pause);
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
    if (!answer->fortune.Served()) {
      if (absl::Status reason = interruption.reason(); !reason.ok()) {
        call->Cancel();
        cancel.reset();
        let_go(call);
        return reason;
      }
    } else if (ask) {
      const absl::Status asked = ask();
      if (absl::IsUnavailable(asked)) answer->fortune.TellSilent("");
    }
  }
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_TELLING_CALL_H_
