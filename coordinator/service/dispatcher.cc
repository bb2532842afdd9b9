#include "coordinator/service/dispatcher.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/service/admin_methods.h"
#include "coordinator/service/codec/encode.h"

namespace cohort::coordinator {

Dispatcher::Dispatcher(const DispatcherOptions& options, Engine& engine, CallObserver* observer)
    : options_(options), engine_(engine), observer_(observer) {}

DecodeContext Dispatcher::MakeDecodeContext(absl::Duration time_left) const {
  DecodeContext context;
  context.limits = engine_.limits();
  context.max_wait = options_.max_wait;
  context.time_left = time_left;
  return context;
}

absl::Status Dispatcher::Decode(Method method, google::protobuf::io::ZeroCopyInputStream* request,
                                absl::Duration time_left, Call* call, Asker* asker) {
  const absl::Status status = GetMethod(method).decode(request, MakeDecodeContext(time_left), call);
  if (!status.ok()) return status;
  asker->key = call->caller.key;
  asker->session = call->caller.session;
  if (const auto* list = std::get_if<ListGroupsCall>(&call->body)) {
    asker->page_size = list->page_size;
  }
  blobs_.Acknowledge(call->caller.key, call->caller.session, call->caller.acknowledged);
  blobs_.FreeOld(engine_.clock().Now());
  return absl::OkStatus();
}

absl::Status Dispatcher::Encode(Method method, const Reply& reply, const Asker& asker,
                                DeliveryContext& context, MessageBytes* message) {
  if (!reply.status.ok()) return EncodeStatus(reply, context.now);
  if (reply.body.index() != GetMethod(method).reply_index) {
    return absl::InvalidArgumentError(
        "scope.operation_id: was used before, for a call of another method");
  }
  const Limits& limits = engine_.limits();
  EncodeContext encode;
  encode.now = context.now;
  encode.server_incarnation = engine_.server_incarnation();
  encode.draining = engine_.draining();
  encode.max_inline_bytes = limits.max_inline_bytes;
  encode.max_message_bytes = options_.max_message_bytes;
  encode.max_blob_bytes = limits.max_bytes_held;
  encode.key = &asker.key;
  encode.session = asker.session;
  encode.page_size = asker.page_size;
  encode.blobs = &blobs_;
  encode.cache = &context.cache;
  return coordinator::Encode(reply, encode, message);
}

absl::Status Dispatcher::Run(Method method, google::protobuf::io::ZeroCopyInputStream* request,
                             MessageBytes* message) {
  switch (method) {
    case Method::kLimits:
      return RunLimits(engine_, request, message);
    case Method::kDrain:
      return RunDrain(engine_, request, message);
    case Method::kServerStats:
      return RunServerStats(engine_, request, message);
    default:
      return absl::UnimplementedError(absl::StrCat(GetMethod(method).name, " is a stream"));
  }
}

Instant Dispatcher::OnStarted(Method method) {
  active_.fetch_add(kOneCall);
  if (observer_ != nullptr) observer_->OnStarted(method);
  return engine_.clock().Now();
}

bool Dispatcher::AwaitIdle(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  idle_ = false;
  if (active_.fetch_or(kAwaited) / kOneCall == 0) return true;
  return mutex_.AwaitWithTimeout(absl::Condition(&idle_), timeout);
}

// Under the lock: whoever awaits the last call may destroy this as soon as it knows.
void Dispatcher::GoneWhileAwaited() {
  MutexLock lock(&mutex_);
  if (active_.fetch_sub(kOneCall) == kOneCall + kAwaited) idle_ = true;
}

void Dispatcher::NotifyIdle() {
  MutexLock lock(&mutex_);
  idle_ = true;
}

void Dispatcher::OnHandled(Method method, absl::StatusCode code, Instant started) {
  if (observer_ != nullptr) {
    observer_->OnHandled(method, code, engine_.clock().Now() - started);
  }
}

}  // namespace cohort::coordinator
