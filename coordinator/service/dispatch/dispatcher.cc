#include "coordinator/service/dispatch/dispatcher.h"

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/access/access_policy.h"
#include "base/access/role.h"
#include "base/memory/no_memory.h"
#include "base/status_macros.h"
#include "coordinator/service/codec/encode.h"
#include "coordinator/service/dispatch/admin_methods.h"

namespace cohort::coordinator {
namespace {

// The name of a client whose connection has ended.
constexpr char kGone[] = "a client that is gone";

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

// The object of a call that the audit log names once it was done; empty: the log does not name the
// call.
std::string AuditedObject(const Call& call) {
  if (const auto* evict = std::get_if<EvictCall>(&call.body)) {
    return absl::StrCat("member ", evict->member, " of group ", call.caller.key.group);
  }
  if (std::holds_alternative<CloseGroupCall>(call.body)) {
    return absl::StrCat("group ", call.caller.key.group);
  }
  return "";
}

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
  if (!options_.checks_access) return absl::OkStatus();
  const Instant now = engine_.clock().Now();
  const AccessNeed need{GetMethod(method).name, GetMethod(method).role, ""};
  // A client that ends its connection behind a request must not have it parsed.
  if (access == nullptr) return audit_.Deny(need, {kGone, ""}, Role::kNone, now);
  const std::shared_ptr<const Rights> rights = access->Current(now);
  const Role role = rights->HighestRole();
  if (role >= need.role) return absl::OkStatus();
  return audit_.Deny(need, {*rights->identity, *access->address(), rights->payer()}, role,
                     now);
}

absl::StatusOr<Dispatcher::Admitted> Dispatcher::RightsFor(Method method, PeerAccess* access,
                                                           const GroupKey& key,
                                                           const Id128& session) {
  const Instant now = engine_.clock().Now();
  AccessNeed need{GetMethod(method).name, GetMethod(method).role, key.tenant};
  // The state machine checks that a session is of the group.
  if (method == Method::kCloseGroup && session.empty()) need.role = Role::kOperator;
  if (access == nullptr) return audit_.Deny(need, {kGone, ""}, Role::kNone, now);
  Admitted admitted;
  admitted.rights = access->Current(now);
  const Rights& rights = *admitted.rights;
  need.tenant = rights.ResolveTenant(key.tenant);
  admitted.role = rights.RoleIn(need.tenant);
  if (admitted.role < need.role) {
    return audit_.Deny(need, {*rights.identity, *access->address(), rights.payer()}, admitted.role,
                       now);
  }
  if (need.tenant != key.tenant) admitted.tenant = std::string(need.tenant);
  return admitted;
}

absl::Status Dispatcher::AdmitAgain(Method method, PeerAccess* access, const GroupKey& key,
                                    const Id128& session) {
  if (!options_.checks_access) return absl::OkStatus();
  return RightsFor(method, access, key, session).status();
}

absl::Status Dispatcher::Admit(Method method, PeerAccess* access, Caller* caller) {
  if (!options_.checks_access) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(Admitted admitted,
                          RightsFor(method, access, caller->key, caller->session));
  if (!admitted.tenant.empty()) caller->key.tenant = std::move(admitted.tenant);
  caller->identity = admitted.rights->identity;
  if (admitted.role < Role::kMember) {
    // They free values and put them back.
    caller->acknowledged.clear();
    caller->abandoned.clear();
  }
  return absl::OkStatus();
}

void Dispatcher::CountRequest(PeerAccess* access, const Caller& caller, int64_t weight,
                              int64_t bytes) {
  if (!options_.checks_access || access == nullptr) return;
  const Instant now = Clock::Steady().Now();
  // A refused client may have named any tenant.
  const std::shared_ptr<const Rights> rights =
      caller.identity != nullptr ? nullptr : access->Current(now);
  const std::string& payer = rights == nullptr ? caller.key.tenant : rights->payer();
  const absl::Duration pause =
      rates_->OnRequest(payer, weight + bytes / TenantRates::kBytesEach,
                       engine_.limits().max_tenant_requests_per_second, now);
  if (pause > absl::ZeroDuration()) access->PauseReading(now + pause);
}

void Dispatcher::CountTime(const std::string& tenant, absl::Duration took) {
  // A tenant may use a quarter of the time of a thread.
  constexpr double kShare = 0.25;
  const int64_t limit = engine_.limits().max_tenant_requests_per_second;
  const auto weight =
      static_cast<int64_t>(absl::ToDoubleSeconds(took) / kShare * static_cast<double>(limit));
  if (!options_.checks_access || weight == 0 || tenant.empty()) return;
  rates_->OnRequest(tenant, weight, limit, Clock::Steady().Now());
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
  if (options_.checks_access) {
    asker->identity = call->caller.identity;
    asker->address = access->address();
    if (const auto* join = std::get_if<JoinCall>(&call->body)) {
      // A Join replaces another process at once, and its answer may never come.
      audit_.Done(GetMethod(method).name, {*asker->identity, *asker->address},
                  call->caller.key.tenant,
                  absl::StrCat("member ", join->member, " of group ", call->caller.key.group),
                  engine_.clock().Now());
    }
    asker->audited = AuditedObject(*call);
  }
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
  if (!reply.status.ok()) {
    if (absl::IsPermissionDenied(reply.status) && asker.identity != nullptr) {
      LogRefusal(method, reply.status, {*asker.identity, *asker.address}, context.now);
    }
    return EncodeStatus(reply, context.now);
  }
  if (reply.body.index() != GetMethod(method).reply_index) {
    return absl::InvalidArgumentError(
        "scope.operation_id: was used before, for a call of another method");
  }
  if (!asker.audited.empty()) {
    audit_.Done(GetMethod(method).name, {*asker.identity, *asker.address}, asker.key.tenant,
                asker.audited, context.now);
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
  encode.tenants = &engine_.tenants();
  encode.limits = &limits;
  try {
    const absl::Status status = coordinator::Encode(reply, encode, message);
    if (!status.ok()) *message = MessageBytes();
    return status;
  } catch (const std::bad_alloc&) {
    *message = MessageBytes();
    return NoMemory(GetMethod(method).path(), "an answer", ValueBytes(reply.body));
  }
}

void Dispatcher::LogRefusal(Method method, const absl::Status& status, PeerAccess* access) {
  if (!options_.checks_access || access == nullptr || !absl::IsPermissionDenied(status)) return;
  const Instant now = engine_.clock().Now();
  const std::shared_ptr<const Rights> rights = access->Current(now);
  LogRefusal(method, status, {*rights->identity, *access->address(), rights->payer()}, now);
}

void Dispatcher::LogRefusal(Method method, const absl::Status& status, const AuditedClient& client,
                            Instant now) {
  const std::string why = absl::StrCat(GetMethod(method).name, ": ", status.message());
  audit_.Deny(why, client, now).IgnoreError();
}

absl::Status Dispatcher::Run(Method method, PeerAccess* access,
                             google::protobuf::io::ZeroCopyInputStream* request,
                             MessageBytes* message) {
  Caller caller;
  caller.key.tenant = std::string(kAllTenants);
  if (method == Method::kCheckAccess) {
    COHORT_RETURN_IF_ERROR(AdmitAnywhere(method, access));
    return CheckAccess(access, request, message);
  }
  COHORT_RETURN_IF_ERROR(Admit(method, access, &caller));
  std::string change;
  absl::Status status;
  switch (method) {
    case Method::kLimits:
      status = RunLimits(engine_, request, message, &change);
      break;
    case Method::kDrain:
      status = RunDrain(engine_, request, message, &change);
      break;
    case Method::kServerStats:
      return RunServerStats(engine_, request, message);
    default:
      return absl::UnimplementedError(absl::StrCat(GetMethod(method).name, " is a stream"));
  }
  if (status.ok() && options_.checks_access && !change.empty()) {
    audit_.Done(GetMethod(method).name, {*caller.identity, *access->address()}, kAllTenants, change,
                engine_.clock().Now());
  }
  return status;
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
