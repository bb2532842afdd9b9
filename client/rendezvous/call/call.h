// The two ways to make a call. Both repeat it, unchanged but for its times, while the coordinator
// is away.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CALL_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/framed_rpc/client/client_event_loop.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/call_retries.h"
#include "client/rendezvous/call/connection_impl.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/client_context.h"

namespace cohort::client {

// A frame: room for the header, and the request.
template <typename Request>
std::string MakeFrame(const Request& request) {
  std::string frame;
  frame.reserve(framed_rpc::kHeaderBytes + request.ByteSizeLong());
  frame.resize(framed_rpc::kHeaderBytes);
  request.AppendToString(&frame);
  return frame;
}

inline grpc::Status ParseFrameBody(absl::string_view body,
                                   google::protobuf::MessageLite* response) {
  if (response->ParseFromArray(body.data(), static_cast<int>(body.size()))) return grpc::Status::OK;
  return grpc::Status(grpc::StatusCode::INTERNAL, "the answer is not a message of this method");
}

// False, and nothing was done, when there is no framed RPC connection.
template <typename Request>
bool CallByFramedRpc(const framed_rpc::Route& route, const Request& request, absl::Duration timeout,
                     google::protobuf::MessageLite* response, grpc::Status* status) {
  class Waiter final : public framed_rpc::ClientConnection::Waiter {
   public:
    Waiter(google::protobuf::MessageLite* response, grpc::Status* status)
        : response_(response), status_(status) {}
    void OnReply(const grpc::Status& status, absl::string_view body) override {
      *status_ = status.ok() ? ParseFrameBody(body, response_) : status;
    }

   private:
    google::protobuf::MessageLite* const response_;
    grpc::Status* const status_;
  };
  if (route.connection == nullptr) return false;
  Waiter waiter(response, status);
  return route.connection->Call(route.method, MakeFrame(request), timeout, waiter);
}

// Blocks this thread, which polls for its own answer, so no other thread has to wake it.
// `interruption` ends the pauses between retries.
template <typename M>
absl::Status CallBlocking(ConnectionImpl& connection, const M& method, CallLimits limits,
                          Interruption& interruption, typename M::Request& request,
                          typename M::Response* response) {
  CallRetries retries(connection.options(), std::move(limits));
  while (true) {
    const absl::Duration timeout = retries.Prepare(request);
    grpc::Status status;
    // A callback that blocks, as it should not, must not wait for the thread it runs on.
    if (!retries.use_framed_rpc() || framed_rpc::ClientEventLoop().InLoop() ||
        !CallByFramedRpc(connection.framed_channel().RouteOf(method.path), request, timeout,
                         response, &status)) {
      grpc::ClientContext context;
      context.set_deadline(GrpcDeadline(timeout));
      status = (connection.stub<typename M::Service>().*method.call)(&context, request, response);
    }
    if (status.ok()) return absl::OkStatus();
    absl::Status result;
    const std::optional<absl::Duration> pause = retries.Judge(status, &result);
    if (!pause.has_value()) return result;
    if (absl::Status slept = interruption.Sleep(*pause); !slept.ok()) return slept;
    response->Clear();
  }
}

class Cancellable {
 public:
  virtual ~Cancellable() = default;
  // Asks for an early end, once it has started; it still ends in its usual way, with CANCELLED.
  virtual void Cancel() = 0;
};

// The calls in flight of one owner. Thread-safe.
class CallRegistry {
 public:
  // False, and nothing is kept, after CancelAll.
  bool Add(std::shared_ptr<Cancellable> call) {
    MutexLock lock(&mutex_);
    if (closed_) return false;
    calls_.insert(std::move(call));
    return true;
  }
  void Remove(const std::shared_ptr<Cancellable>& call) {
    MutexLock lock(&mutex_);
    calls_.erase(call);
  }
  void CancelAll() {
    absl::flat_hash_set<std::shared_ptr<Cancellable>> calls;
    {
      MutexLock lock(&mutex_);
      closed_ = true;
      calls = calls_;
    }
    for (const std::shared_ptr<Cancellable>& call : calls) call->Cancel();
  }

 private:
  Mutex mutex_;
  absl::flat_hash_set<std::shared_ptr<Cancellable>> calls_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

inline absl::Status OwnerGone() {
  return absl::CancelledError("the object that made this call was destroyed");
}

// Without a thread: attempts end on gRPC's threads, pauses on the connection's.
template <typename M>
class AsyncCall final : public Cancellable,
                        private framed_rpc::ClientConnection::Waiter,
                        public std::enable_shared_from_this<AsyncCall<M>> {
 public:
  using Request = typename M::Request;
  using Response = typename M::Response;
  using Done = std::function<void(absl::Status, Response&)>;

  // `done` runs once, on a thread of the library.
  AsyncCall(std::shared_ptr<ConnectionImpl> connection, const M& method, CallLimits limits,
            Request request, Done done)
      : connection_(std::move(connection)),
        method_(method),
        request_(std::move(request)),
        done_(std::move(done)),
        retries_(connection_->options(), std::move(limits)) {}

  void Start() {
    {
      MutexLock lock(&mutex_);
      pause_ = 0;
    }
    if (Cancelled()) {
      Finish(OwnerGone());
      return;
    }
    const absl::Duration timeout = retries_.Prepare(request_);
    response_.Clear();
    if (retries_.use_framed_rpc() && StartByFramedRpc(timeout)) return;
    auto context = std::make_shared<grpc::ClientContext>();
    context->set_deadline(GrpcDeadline(timeout));
    {
      MutexLock lock(&mutex_);
      if (!cancelled_) context_ = context;
    }
    if (Cancelled()) {
      Finish(OwnerGone());
      return;
    }
    (connection_->stub<typename M::Service>().async()->*method_.start)(
        context.get(), &request_, &response_,
        [self = this->shared_from_this(), context](grpc::Status status) {
          self->OnAnswer(status);
        });
  }

  void Cancel() override {
    std::shared_ptr<grpc::ClientContext> context;
    framed_rpc::Route route;
    uint32_t framed_call_id = 0;
    uint64_t pause = 0;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      context = context_;
      route = route_;
      framed_call_id = framed_call_id_;
      pause = pause_;
    }
    // Outside of the lock: the answer may come in this very call.
    if (context != nullptr) context->TryCancel();
    if (route.connection != nullptr) route.connection->Cancel(framed_call_id);
    if (pause != 0 && connection_->timers().Cancel(pause)) {
      connection_->timers().Post([self = this->shared_from_this()] { self->Finish(OwnerGone()); });
    }
  }

 private:
  bool StartByFramedRpc(absl::Duration timeout) {
    const framed_rpc::Route route = connection_->framed_channel().RouteOf(method_.path);
    if (route.connection == nullptr) return false;
    int attempt = 0;
    {
      MutexLock lock(&mutex_);
      attempt = attempt_;
    }
    std::shared_ptr<AsyncCall> self = this->shared_from_this();
    uint32_t id = 0;
    if (!route.connection->Start(route.method, MakeFrame(request_), timeout,
                                 std::shared_ptr<framed_rpc::ClientConnection::Waiter>(self, this),
                                 &id)) {
      return false;
    }
    bool cancelled = false;
    {
      MutexLock lock(&mutex_);
      // Else the answer has come before this.
      if (attempt == attempt_) {
        route_ = route;
        framed_call_id_ = id;
      }
      cancelled = cancelled_;
    }
    if (cancelled) route.connection->Cancel(id);
    return true;
  }

  void OnReply(const grpc::Status& status, absl::string_view body) override {
    const grpc::Status result = status.ok() ? ParseFrameBody(body, &response_) : status;
    // This thread reads for others, and may be that of a caller that blocks: callbacks come later.
    framed_rpc::ClientEventLoop().Post(
        [self = this->shared_from_this(), result] { self->OnAnswer(result); });
  }

  bool Cancelled() {
    MutexLock lock(&mutex_);
    return cancelled_;
  }

  void OnAnswer(const grpc::Status& status) {
    absl::Status result;
    std::optional<absl::Duration> pause;
    if (!status.ok()) pause = retries_.Judge(status, &result);
    bool cancelled = false;
    {
      MutexLock lock(&mutex_);
      ++attempt_;
      context_.reset();
      route_ = framed_rpc::Route();
      cancelled = cancelled_;
      if (pause.has_value() && !cancelled) {
        pause_ = connection_->timers().After(*pause,
                                             [self = this->shared_from_this()] { self->Start(); });
        return;
      }
    }
    Finish(cancelled && !status.ok() ? OwnerGone() : result);
  }

  void Finish(absl::Status status) {
    Done done = std::exchange(done_, nullptr);
    done(std::move(status), response_);
  }

  const std::shared_ptr<ConnectionImpl> connection_;
  const M& method_;  // a constant of methods.h
  Request request_;
  Response response_;
  Done done_;
  CallRetries retries_;

  Mutex mutex_;
  std::shared_ptr<grpc::ClientContext> context_ ABSL_GUARDED_BY(mutex_);
  framed_rpc::Route route_ ABSL_GUARDED_BY(mutex_);
  uint32_t framed_call_id_ ABSL_GUARDED_BY(mutex_) = 0;
  int attempt_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t pause_ ABSL_GUARDED_BY(mutex_) = 0;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CALL_H_
