// The shared part of the calls of a StoreClient: connection, namespace of the keys, receipts.
#ifndef COHORT_CLIENT_RENDEZVOUS_STORE_NAMESPACE_H_
#define COHORT_CLIENT_RENDEZVOUS_STORE_NAMESPACE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/async_store_client.h"
#include "client/rendezvous/call/call_retries.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/call/connection/connection_impl.h"
#include "client/rendezvous/call/connection/methods.h"
#include "client/rendezvous/call/unary_call.h"
#include "client/rendezvous/session/call_mode.h"
#include "client/rendezvous/session/receipts.h"

namespace cohort::client {

// A call of the store.
struct StoreCall {
  std::string what;  // for texts
  bool mutates = false;
  AsyncStoreOptions options;
  absl::Duration wait = absl::ZeroDuration();  // zero: the method does not wait
};

// An asynchronous call that may be cancelled.
struct InFlight {
  std::shared_ptr<Cancellation> cancellation;
  std::optional<Cancellation::Listener> on_cancel;
};

// The state that outlives the client while its last acknowledgement is on its way.
class StoreNamespace final : public std::enable_shared_from_this<StoreNamespace> {
 public:
  StoreNamespace(std::shared_ptr<ConnectionImpl> connection, absl::string_view group)
      : connection_(std::move(connection)), group_(group) {}

  ConnectionImpl& connection() const { return *connection_; }
  Interruption& interruption() { return interruption_; }

  void FillScope(v1::Scope* scope) const {
    scope->set_tenant(connection_->options().tenant);
    scope->set_group(group_);
  }

  // A call that blocks, or whose `then(status, response)` runs later on a thread of the library.
  template <typename M, typename Then>
  void Run(CallMode mode, const M& method, StoreCall call, typename M::Request request, Then then) {
    v1::Scope* scope = request.mutable_scope();
    FillScope(scope);
    if (call.mutates) scope->set_operation_id(connection_->NewOperationId());
    {
      MutexLock lock(&mutex_);
      receipts_.Ride(scope);
    }
    const Instant now = Clock::Steady().Now();
    CallLimits limits{std::move(call.what), now + call.options.timeout};
    limits.wait_until = call.wait > absl::ZeroDuration() ? now + call.wait : absl::InfinitePast();
    if (mode == CallMode::kAsync) {
      return Start(method, std::move(limits), call.options.cancellation, std::move(request),
                   std::move(then));
    }
    typename M::Response response;
    absl::Status status =
        CallMonitored(*connection_, method, std::move(limits), interruption_, request, &response);
    Settle(*scope, status, Receipts::kTakes<typename M::Request>);
    then(std::move(status), response);
  }

  void AddReceipt(int64_t receipt) {
    if (receipt == 0) return;
    {
      MutexLock lock(&mutex_);
      receipts_.Add(receipt);
    }
    ScheduleFlush();
  }

  // Those that no other call carried go with the cheapest call. At its end, the others follow.
  void Flush() {
    v1::GetRequest request;
    FillScope(request.mutable_scope());
    request.add_keys("-");
    {
      MutexLock lock(&mutex_);
      flush_scheduled_ = !receipts_.empty();
      if (!flush_scheduled_) return;
      receipts_.Ride(request.mutable_scope());
    }
    CallLimits limits{"acknowledge", Clock::Steady().Now() + absl::Seconds(10)};
    limits.wait_until = absl::InfinitePast();
    const v1::Scope scope = request.scope();
    std::make_shared<AsyncCall<decltype(method::kGet)>>(
        connection_, method::kGet, std::move(limits), std::move(request),
        [self = shared_from_this(), scope](const absl::Status& status, v1::GetResponse&) {
          {
            MutexLock lock(&self->mutex_);
            self->flush_scheduled_ = false;
            if (!status.ok()) self->receipts_.Return(scope);
            if (self->receipts_.empty()) return;
          }
          self->ScheduleFlush();
        })
        ->Start();
  }

 private:
  template <typename M, typename Then>
  void Start(const M& method, CallLimits limits, std::shared_ptr<Cancellation> cancellation,
             typename M::Request request, Then then) {
    auto in_flight = std::make_shared<InFlight>();
    in_flight->cancellation = std::move(cancellation);
    auto call = std::make_shared<AsyncCall<M>>(
        connection_, method, std::move(limits), request,
        [self = shared_from_this(), in_flight, scope = request.scope(), then = std::move(then)](
            absl::Status status, typename M::Response& response) {
          in_flight->on_cancel.reset();
          self->Settle(scope, status, Receipts::kTakes<typename M::Request>);
          if (in_flight->cancellation != nullptr && absl::IsCancelled(status)) {
            absl::Status reason = in_flight->cancellation->reason();
            if (!reason.ok()) status = std::move(reason);
          }
          then(std::move(status), response);
        });
    if (in_flight->cancellation != nullptr) {
      in_flight->on_cancel.emplace(*in_flight->cancellation,
                                   [call](const absl::Status& /*reason*/) { call->AskToCancel(); });
    }
    call->Start();
  }

  // After an error: keeps what the call carried, and abandons the call itself if it `takes` a
  // value.
  void Settle(const v1::Scope& scope, const absl::Status& status, bool takes) {
    const bool is_lost = takes && Receipts::MayBeLost(status);
    if (status.ok() || (!is_lost && !Receipts::HasAny(scope))) return;
    {
      MutexLock lock(&mutex_);
      receipts_.Return(scope);
      if (is_lost) receipts_.Abandon(scope.operation_id());
    }
    ScheduleFlush(/*at_once=*/is_lost);
  }

  void ScheduleFlush(bool at_once = false) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(flush_scheduled_, true)) return;
    }
    if (at_once) {
      // Others may wait for a value, also after the end of this client.
      connection_->timers().Post([self = shared_from_this()] { self->Flush(); });
      return;
    }
    connection_->timers().After(absl::Seconds(1), [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Flush();
    });
  }

  const std::shared_ptr<ConnectionImpl> connection_;
  const std::string group_;
  Interruption interruption_;  // never raised: these calls end by their timeouts

  Mutex mutex_;
  Receipts receipts_ ABSL_GUARDED_BY(mutex_);
  bool flush_scheduled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_STORE_NAMESPACE_H_
