// The three ways to make a unary call. All repeat it, unchanged but for its times, while the
// coordinator is away.
//
//   CallBlocking    blocks this thread, which polls for its own answer
//   CallMonitored   blocks, and reports meanwhile why it waits
//   AsyncCall       has no thread, and runs a function at its end
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_UNARY_CALL_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_UNARY_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/framed_rpc/client/client_connection.h"
#include "base/framed_rpc/client/framed_rpc_channel.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/call_registry.h"
#include "client/rendezvous/call/call_retries.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/connection/connection_impl.h"
#include "client/rendezvous/call/connection/methods.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/status.h"

namespace cohort::client {

// No other thread has to wake this one. `interruption` ends the pauses between retries;
// `cancellations` end the call. The messages are of the types of the method.
absl::Status CallBlocking(ConnectionImpl& connection, const MethodInfo& method, CallLimits limits,
                          Interruption& interruption, const CallCancellations& cancellations,
                          google::protobuf::MessageLite& request,
                          google::protobuf::MessageLite* response);

// A call without a thread: attempts end on gRPC's threads, pauses on the connection's. AsyncCall
// adds the types.
class UnaryCall : public Cancellable,
                  private framed_rpc::ClientConnection::Waiter,
                  public std::enable_shared_from_this<UnaryCall> {
 public:
  void Start();
  void Cancel() override { Cancel(absl::ZeroDuration()); }
  void AskToCancel() override;

 protected:
  UnaryCall(std::shared_ptr<ConnectionImpl> connection, const MethodInfo& method, CallLimits limits)
      : connection_(std::move(connection)),
        method_(method),
        retries_(connection_->options(), std::move(limits)) {}
  // The messages of the subclass, before Start.
  void SetMessages(google::protobuf::MessageLite* request,
                   google::protobuf::MessageLite* response) {
    request_ = request;
    response_ = response;
  }

 private:
  // Runs once, on a thread of the library.
  virtual void OnDone(absl::Status status) = 0;

  // `patience`: how long it waits for the coordinator's reply. Zero: not at all.
  void Cancel(absl::Duration patience);
  // Whether a framed RPC connection is being made: OnSettled then goes on.
  bool AwaitConnection();
  void OnSettled();
  void StartAttempt();
  bool StartByFramedRpc(absl::Duration timeout);
  void StartByGrpc(absl::Duration timeout);
  void OnReply(const grpc::Status& status, absl::string_view body) override;
  void OnAnswer(const grpc::Status& status);
  bool Cancelled();

  const std::shared_ptr<ConnectionImpl> connection_;
  const MethodInfo& method_;  // a constant of methods.h
  google::protobuf::MessageLite* request_ = nullptr;
  google::protobuf::MessageLite* response_ = nullptr;
  CallRetries retries_;

  Mutex mutex_;
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  framed_rpc::Route route_ ABSL_GUARDED_BY(mutex_);
  uint32_t framed_call_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t pause_ ABSL_GUARDED_BY(mutex_) = 0;
  bool connecting_ ABSL_GUARDED_BY(mutex_) = false;  // waits for OnSettled
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration cancel_patience_ ABSL_GUARDED_BY(mutex_);
};

template <typename M>
class AsyncCall final : public UnaryCall {
 public:
  using Request = typename M::Request;
  using Response = typename M::Response;
  using Done = std::function<void(absl::Status, Response&)>;

  // `done` runs once, on a thread of the library.
  AsyncCall(std::shared_ptr<ConnectionImpl> connection, const M& method, CallLimits limits,
            Request request, Done done)
      : UnaryCall(std::move(connection), method, std::move(limits)),
        request_(std::move(request)),
        done_(std::move(done)) {
    SetMessages(&request_, &response_);
  }

  // Valid once `done` has run.
  Response& response() { return response_; }

 private:
  void OnDone(absl::Status status) override {
    const Done done = std::exchange(done_, nullptr);
    done(std::move(status), response_);
  }

  Request request_;
  Response response_;
  Done done_;
};

// Waits for a call in flight on this thread, and reports about each second why it waits.
class CallMonitor {
 public:
  // `ask` asks the coordinator what the call waits for, and returns its own status; it may be
  // empty.
  CallMonitor(ConnectionImpl& connection, Interruption& interruption,
              const std::function<absl::Status()>& ask, const CallCancellations& cancellations)
      : connection_(connection),
        interruption_(interruption),
        ask_(ask),
        cancellations_(cancellations) {}

  // Whether there is something to report. Otherwise CallBlocking is enough.
  bool IsNeeded() const;
  // Adds to `limits` what the call needs for reports. Returns the connection for the call.
  std::shared_ptr<ConnectionImpl> Prepare(const MethodInfo& method, CallLimits* limits);
  // The call passes its status to Notify at its end.
  struct Answer;
  const std::shared_ptr<Answer>& answer() const { return answer_; }
  static void Notify(Answer& answer, absl::Status status);
  // Starts the call. Returns its status and sets `*answered`, or returns why the wait ended before.
  absl::Status Run(UnaryCall& call, bool* answered);
  // Drops the call, and waits a moment until it has let go of the connection. The thread that
  // brings the answer must not be the last to do so: the caller's process may be ending by then,
  // and gRPC with it.
  void Release(std::shared_ptr<UnaryCall> call);

 private:
  ConnectionImpl& connection_;
  Interruption& interruption_;
  const std::function<absl::Status()>& ask_;
  const CallCancellations& cancellations_;
  std::shared_ptr<Answer> answer_;
};

// Like CallBlocking. About each second it calls a function on this thread. While the coordinator
// does not serve the call, that is the connection's `on_away`. Otherwise it is `ask`. See
// CallMonitor. `cancellation` may be null; that of the thread's CancellationScope counts as well.
template <typename M>
absl::Status CallMonitored(ConnectionImpl& connection, const M& method, CallLimits limits,
                           Interruption& interruption, typename M::Request& request,
                           typename M::Response* response,
                           const std::function<absl::Status()>& ask = nullptr,
                           Cancellation* cancellation = nullptr) {
  const CallCancellations cancellations(cancellation);
  CallMonitor monitor(connection, interruption, ask, cancellations);
  if (!monitor.IsNeeded()) {
    return CallBlocking(connection, method, std::move(limits), interruption, cancellations, request,
                        response);
  }
  COHORT_RETURN_IF_ERROR(cancellations.reason());
  std::shared_ptr<ConnectionImpl> lent = monitor.Prepare(method, &limits);
  auto call = std::make_shared<AsyncCall<M>>(
      std::move(lent), method, std::move(limits), request,
      [answer = monitor.answer()](absl::Status status, typename M::Response&) {
        CallMonitor::Notify(*answer, std::move(status));
      });
  bool answered = false;
  absl::Status status = monitor.Run(*call, &answered);
  if (answered) response->Swap(&call->response());
  monitor.Release(std::move(call));
  return status;
}

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_UNARY_CALL_H_
