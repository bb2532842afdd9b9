#include "coordinator/service/dispatch/dispatcher.h"

#include <new>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/memory/no_memory.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "coordinator/service/codec/encode.h"
#include "coordinator/service/dispatch/admin_methods.h"

namespace cohort::coordinator {
namespace {

constexpr char kDefaultTenant[] = "default";
// Between two lines of the log about denied calls.
constexpr absl::Duration kBetweenDenialLines = absl::Seconds(1);

int64_t SizeOf(const Payload& value) { return value.size(); }
int64_t SizeOf(const KeyValue& value) { return value.value.size(); }
int64_t SizeOf(const KeyEvent& event) { return SizeOf(event.key_value); }
template <typename Values>
int64_t SumOf(const Values& values) {
  int64_t sum = 0;
  for (const auto& value : values) sum += SizeOf(value);
  return sum;
}

// The size of the values in an answer.
struct ValueBytesOf {
  int64_t operator()(const RoundReply& reply) const {
    return reply.own.size() +
           (reply.with_values && reply.end != nullptr ? SumOf(reply.end->values) : 0);
  }
  int64_t operator()(const ReceiveReply& reply) const { return reply.payload.size(); }
  int64_t operator()(const GetReply& reply) const { return SumOf(reply.values); }
  int64_t operator()(const RangeReply& reply) const { return SumOf(reply.values); }
  int64_t operator()(const QueuePopReply& reply) const { return reply.value.size(); }
  int64_t operator()(const WatchKeysReply& reply) const { return SumOf(reply.events); }
  template <typename Other>
  int64_t operator()(const Other&) const {
    return 0;
  }
};
int64_t ValueBytes(const ReplyBody& body) { return std::visit(ValueBytesOf(), body); }

}  // namespace

Dispatcher::Dispatcher(const DispatcherOptions& options, Engine& engine, CallObserver* observer)
    : options_(options), engine_(engine), observer_(observer) {}

DecodeContext Dispatcher::MakeDecodeContext(absl::Duration time_left) const {
  DecodeContext context;
  context.limits = engine_.limits();
  context.max_wait = options_.max_wait;
  context.time_left = time_left;
  return context;
}

absl::Status Dispatcher::AdmitAnywhere(Method method, PeerAccess* access) {
  if (!options_.checks_access || access == nullptr) return absl::OkStatus();  // Admit decides
  const std::shared_ptr<const Rights> rights = access->Current(engine_.clock().Now());
  const Role role = rights->HighestRole();
  if (role >= GetMethod(method).role) return absl::OkStatus();
  return Deny(method, GetMethod(method).role, *rights->identity, "", role);
}

absl::Status Dispatcher::Admit(Method method, PeerAccess* access, Caller* caller) {
  if (!options_.checks_access) return absl::OkStatus();
  std::string& tenant = caller->key.tenant;
  Role needed = GetMethod(method).role;
  // The state machine checks that a session is of the group.
  if (method == Method::kCloseGroup && caller->session.empty()) needed = Role::kOperator;
  if (access == nullptr) return Deny(method, needed, "a client that is gone", tenant, Role::kNone);
  const std::shared_ptr<const Rights> rights = access->Current(engine_.clock().Now());
  Role role = rights->RoleIn(tenant);
  if (role == Role::kNone && tenant == kDefaultTenant && !rights->OwnTenant().empty()) {
    tenant = std::string(rights->OwnTenant());
    role = rights->RoleIn(tenant);
  }
  if (role < needed) return Deny(method, needed, *rights->identity, tenant, role);
  caller->identity = rights->identity;
  return absl::OkStatus();
}

absl::Status Dispatcher::Deny(Method method, Role needed, absl::string_view identity,
                              absl::string_view tenant, Role role) {
  std::string where = absl::StrCat("tenant ", tenant);
  if (tenant == kAllTenants) where = "all tenants";
  if (tenant.empty()) where = "a tenant";
  const std::string has =
      role == Role::kNone ? " has no role there" : absl::StrCat(" has the role ", RoleName(role));
  const std::string why = absl::StrCat(GetMethod(method).name, " needs the role ", RoleName(needed),
                                       " in ", where, ", and ", identity, has);
  int64_t times = 0;
  {
    MutexLock lock(&mutex_);
    ++unlogged_denials_;
    const Instant now = engine_.clock().Now();
    if (now >= next_denial_line_) {
      next_denial_line_ = now + kBetweenDenialLines;
      times = std::exchange(unlogged_denials_, 0);
    }
  }
  if (times > 0) Log(LogLevel::kWarning, "denied a call", {{"why", why}, {"times", times}});
  return absl::PermissionDeniedError(why);
}

absl::Status Dispatcher::Decode(Method method, PeerAccess* access,
                                google::protobuf::io::ZeroCopyInputStream* request, size_t bytes,
                                absl::Duration time_left, Call* call, Asker* asker) {
  COHORT_RETURN_IF_ERROR(AdmitAnywhere(method, access));
  absl::Status status;
  try {
    status = GetMethod(method).decode(request, MakeDecodeContext(time_left), call);
  } catch (const std::bad_alloc&) {
    return NoMemory(GetMethod(method).path(), "a request", static_cast<int64_t>(bytes));
  }
  if (!status.ok()) return status;
  COHORT_RETURN_IF_ERROR(Admit(method, access, &call->caller));
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
  encode.account = &engine_.shared_account();
  encode.max_bytes_held = limits.max_bytes_held;
  try {
    const absl::Status status = coordinator::Encode(reply, encode, message);
    if (!status.ok()) *message = MessageBytes();
    return status;
  } catch (const std::bad_alloc&) {
    *message = MessageBytes();
    return NoMemory(GetMethod(method).path(), "an answer", ValueBytes(reply.body));
  }
}

absl::Status Dispatcher::Run(Method method, PeerAccess* access,
                             google::protobuf::io::ZeroCopyInputStream* request,
                             MessageBytes* message) {
  Caller caller;
  caller.key.tenant = std::string(kAllTenants);
  COHORT_RETURN_IF_ERROR(Admit(method, access, &caller));
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

// Notifies under the lock: the thread that awaits the last call may destroy this object afterwards.
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
