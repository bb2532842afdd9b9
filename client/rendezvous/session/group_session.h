// One member's session with the coordinator; it holds its membership, its lease, its watch stream,
// its receipts and the numbers of its rounds. A ProcessGroup holds one; so does every call in
// flight, which may outlive the ProcessGroup.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_SESSION_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_SESSION_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/call_registry.h"
#include "client/rendezvous/call/call_retries.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/connection/connection_impl.h"
#include "client/rendezvous/call/unary_call.h"
#include "client/rendezvous/report/report.h"
#include "client/rendezvous/report/report_codec.h"
#include "client/rendezvous/session/call_mode.h"
#include "client/rendezvous/session/receipts.h"
#include "client/rendezvous/session/round_numbers.h"
#include "client/rendezvous/session/send_fifo.h"

namespace cohort::client {

class GroupWatch;

// The numbers of a membership.
struct RankPosition {
  int64_t generation = 0;
  int rank = -1;
  int world_size = 0;
  int64_t revision = 0;
};

struct Membership : RankPosition {
  std::string session;
  absl::Duration lease = absl::Seconds(30);
  int64_t max_inline_bytes = 1 << 20;  // larger values travel as blobs
};

struct CallSpec {
  std::string what;  // in the coordinator's words, such as barrier "step" #812
  Instant deadline;
  bool read = false;            // changes nothing: no operation id, and no receipts
  bool in_any_state = false;    // makes sense in a broken generation too
  bool any_generation = false;  // joins: whichever is current
  bool new_life = false;        // joins: without the session of the life before
  // Blocking calls: called about each second with the missing members. Borrowed; may be null or
  // empty.
  const std::function<void(const MissingReport&)>* on_waiting = nullptr;
  std::shared_ptr<Cancellation> cancellation;  // ends the call with its reason; may be null
};

// A number taken for one round, in the generation in which it was taken.
struct RoundTicket {
  std::string name;
  int64_t number = 0;
  int64_t generation = 0;
};

// Thread-safe.
class GroupSession final : public std::enable_shared_from_this<GroupSession> {
 public:
  // `progress_timeout`: renewals come often enough to carry progress within it.
  GroupSession(std::shared_ptr<ConnectionImpl> connection, std::string group, std::string member,
               std::function<void(const GroupEvent&)> on_event,
               absl::Duration progress_timeout = absl::InfiniteDuration(),
               std::function<TensorReport()> report_tensors = nullptr);

  const std::shared_ptr<ConnectionImpl>& connection() const { return connection_; }
  const std::string& group() const { return group_; }
  const std::string& member() const { return member_; }
  Membership membership() const;
  RankPosition position() const;
  int64_t max_inline_bytes() const;

  // Blocks until the answer is there. OK: `response` is filled.
  template <typename M>
  absl::Status Call(const M& method, typename M::Request& request, typename M::Response* response,
                    const CallSpec& spec);
  // `done` runs once, on a thread of the library.
  template <typename M>
  void CallAsync(const M& method, typename M::Request request, const CallSpec& spec,
                 typename AsyncCall<M>::Done done);
  // One of the two. `then(status, response)` runs once, as `mode` says.
  template <typename M, typename Then>
  void Run(CallMode mode, const M& method, typename M::Request request, const CallSpec& spec,
           Then then);
  // The same for transfers of blobs, which are not unary calls. The call must end in its usual way
  // when cancelled.
  absl::Status FillScope(const CallSpec& spec, v1::Scope* scope);
  // No call is repeated once this session has ended.
  CallLimits Limits(const CallSpec& spec) const;
  CallRegistry& calls() { return calls_; }
  SendFifo& send_fifo() { return send_fifo_; }

  RoundTicket TakeNumber(const std::string& name);
  // `result` null: no answer came, or an error.
  void ReturnNumber(const RoundTicket& ticket, const v1::RoundResult* result);
  // To be acknowledged by the next call, or after a second without one.
  void AddReceipt(int64_t generation, int64_t receipt);
  // The value that the operation has taken cannot be read: the coordinator puts it back.
  void Abandon(int64_t generation, const std::string& operation);

  // Joins (or rejoins in another generation): begins to renew the lease and to watch.
  void Adopt(Membership membership);
  // The same session in a committed view.
  void AdoptView(const RankPosition& position);
  void SetProgress(int64_t counter, absl::string_view operation);
  // All calls fail from now on with `reason`. Ends lease and watch.
  void End(absl::Status reason);
  // The owner calls it: leaves if this membership was not left yet, waits a moment for the answer,
  // and ends all calls in flight.
  void Destroy(absl::string_view reason = "destroyed");

 private:
  friend class GroupWatch;

  // A call in flight. The registry and the call refer to each other until the call ends.
  struct RegisteredCall {
    std::shared_ptr<Cancellable> call;
    std::shared_ptr<Cancellation> cancellation;
    std::optional<Cancellation::Listener> on_cancel;
  };
  void Register(const std::shared_ptr<Cancellable>& call, const CallSpec& spec,
                const std::shared_ptr<RegisteredCall>& registered);
  // If the call was cancelled, `status` becomes the reason.
  void Unregister(RegisteredCall& registered, absl::Status* status);

  absl::Status Begin(const CallSpec& spec, v1::Scope* scope);
  // After an error: keeps what the call carried, and abandons the call itself if it `takes` a
  // value.
  void Finish(const v1::Scope& scope, const absl::Status& status, bool takes);
  void AbandonLocked(const std::string& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ScheduleFlushLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls on_waiting; returns the status of the question to the coordinator.
  absl::Status ReportWaiting(const CallSpec& spec);

  // group_session_lease.cc
  // From one renewal to the next.
  absl::Duration RenewalPauseLocked() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::min(membership_.lease, progress_timeout_) / 3;
  }
  void ScheduleLeaseLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RenewLease(uint64_t epoch);
  // Renews the lease; with `report` also reports this member's tensor operations.
  void SendKeepAlive(bool report, std::function<void()> then);
  // Reports this member's tensor operations, because a call asked for them.
  void Report();
  void OnKeepAlive(int64_t generation, const absl::Status& status,
                   const v1::KeepAliveResponse& response);
  void FlushReceipts();
  void Break(int64_t generation, absl::Status cause);

  // group_session_watch.cc
  void OpenWatch();
  void StartWatch();
  void OnWatchAnswer(const GroupWatch* watch, const v1::WatchGroupResponse& response);
  void OnWatchDone(const GroupWatch* watch, const grpc::Status& status);
  void ReadRevisionAndWatch();
  void DeliverEvent(const GroupEvent& event);

  const std::shared_ptr<ConnectionImpl> connection_;
  const std::string group_;
  const std::string member_;
  const std::function<void(const GroupEvent&)> on_event_;
  const absl::Duration progress_timeout_;
  const std::function<TensorReport()> report_tensors_;

  const std::shared_ptr<Interruption> interruption_ = std::make_shared<Interruption>();
  CallRegistry calls_;
  SendFifo send_fifo_;

  mutable Mutex mutex_;
  Membership membership_ ABSL_GUARDED_BY(mutex_);
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);  // why this generation is over
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);   // why this session is over
  Receipts receipts_ ABSL_GUARDED_BY(mutex_);
  RoundNumbers numbers_ ABSL_GUARDED_BY(mutex_);
  bool flush_scheduled_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t progress_ ABSL_GUARDED_BY(mutex_) = 0;
  std::string progress_operation_ ABSL_GUARDED_BY(mutex_);
  bool is_reporting_ ABSL_GUARDED_BY(mutex_) = false;
  // Grows with each Adopt: chains of renewals of older memberships end by themselves.
  uint64_t lease_epoch_ ABSL_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<GroupWatch> watch_ ABSL_GUARDED_BY(mutex_);
  int64_t watched_revision_ ABSL_GUARDED_BY(mutex_) = 0;
  Backoff watch_backoff_ ABSL_GUARDED_BY(mutex_);
  bool watch_has_answered_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread::id event_thread_ ABSL_GUARDED_BY(mutex_);  // of the on_event that runs
};

template <typename M>
absl::Status GroupSession::Call(const M& method, typename M::Request& request,
                                typename M::Response* response, const CallSpec& spec) {
  COHORT_RETURN_IF_ERROR(Begin(spec, request.mutable_scope()));
  std::function<absl::Status()> ask;
  if (spec.on_waiting != nullptr && *spec.on_waiting) {
    ask = [this, &spec] { return ReportWaiting(spec); };
  }
  absl::Status status = CallMonitored(*connection_, method, Limits(spec), *interruption_, request,
                                      response, ask, spec.cancellation.get());
  Finish(request.scope(), status, Receipts::kTakes<typename M::Request>);
  return status;
}

template <typename M>
void GroupSession::CallAsync(const M& method, typename M::Request request, const CallSpec& spec,
                             typename AsyncCall<M>::Done done) {
  if (absl::Status status = Begin(spec, request.mutable_scope()); !status.ok()) {
    connection_->timers().Post([done = std::move(done), status = std::move(status)] {
      typename M::Response none;
      done(status, none);
    });
    return;
  }
  auto self = shared_from_this();
  auto registered = std::make_shared<RegisteredCall>();
  auto call = std::make_shared<AsyncCall<M>>(
      connection_, method, Limits(spec), request,
      [self, registered, scope = request.scope(), done = std::move(done)](
          absl::Status status, typename M::Response& response) {
        self->Finish(scope, status, Receipts::kTakes<typename M::Request>);
        self->Unregister(*registered, &status);
        done(std::move(status), response);
      });
  Register(call, spec, registered);
  call->Start();
}

template <typename M, typename Then>
void GroupSession::Run(CallMode mode, const M& method, typename M::Request request,
                       const CallSpec& spec, Then then) {
  if (mode == CallMode::kAsync) {
    CallAsync(method, std::move(request), spec, std::move(then));
    return;
  }
  typename M::Response response;
  absl::Status status = Call(method, request, &response, spec);
  then(std::move(status), response);
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_SESSION_H_
