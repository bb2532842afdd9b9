#include "coordinator/service/torchft/lighthouse_service.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/memory/no_memory.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/codec/field_checks.h"
#include "coordinator/service/grpc/caller_access.h"
#include "coordinator/service/torchft/lighthouse.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/proto_buffer_reader.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/slice.h"
#include "torchft/lighthouse.grpc.pb.h"

namespace cohort::coordinator::torchft {
namespace {

// The methods with which metrics count: a quorum waits as a get, and a heartbeat keeps alive.
constexpr Method kQuorumMethod = Method::kGet;
constexpr Method kHeartbeatMethod = Method::kKeepAlive;
constexpr size_t kMaxTextBytes = 1024;

// Errors: INVALID_ARGUMENT (not such a message), RESOURCE_EXHAUSTED (no memory for it).
template <typename Message>
absl::Status Parse(absl::string_view method, const grpc::ByteBuffer* request, Message* message) {
  // The buffer is not really const. It is emptied, so that a parked call does not keep its request.
  auto* const bytes = const_cast<grpc::ByteBuffer*>(request);
  const absl::Status status =
      WithMemory(absl::StrCat(kServiceName, "/", method), "a request",
                 static_cast<int64_t>(bytes->Length()), [&] {
                   grpc::ProtoBufferReader reader(bytes);
                   return reader.status().ok() && message->ParseFromZeroCopyStream(&reader)
                              ? absl::OkStatus()
                              : absl::InvalidArgumentError(
                                    "the request is not a well-formed message of this method");
                 });
  bytes->Clear();
  return status;
}

absl::Status CheckReplicaId(absl::string_view field, absl::string_view replica) {
  if (replica.empty()) return InvalidField(field, "must not be empty");
  return CheckBytes(field, replica, kMaxTextBytes);
}

absl::Status CheckRequester(const wire::LighthouseQuorumRequest& request,
                            const DecodeContext& context) {
  if (!request.has_requester()) return InvalidField("requester", "must not be absent");
  const wire::QuorumMember& member = request.requester();
  COHORT_RETURN_IF_ERROR(CheckReplicaId("requester.replica_id", member.replica_id()));
  COHORT_RETURN_IF_ERROR(CheckBytes("requester.address", member.address(), kMaxTextBytes));
  COHORT_RETURN_IF_ERROR(
      CheckBytes("requester.store_address", member.store_address(), kMaxTextBytes));
  return CheckValueSize("requester.data", member.data().size(), context);
}

// One call of Quorum. It holds no thread while it waits, and owns itself until OnDone.
class QuorumReactor final : public grpc::ServerUnaryReactor, private QuorumCall {
 public:
  static grpc::ServerUnaryReactor* Start(Lighthouse& lighthouse, Dispatcher& dispatcher,
                                         grpc::CallbackServerContext* context,
                                         const grpc::ByteBuffer* request,
                                         grpc::ByteBuffer* response) {
    auto* const call = new QuorumReactor(lighthouse, dispatcher, response);
    // gRPC deletes nothing before this function has returned.
    const absl::Status status = call->Enter(context, request);
    if (!status.ok()) call->Complete(status);
    return call;
  }

 private:
  QuorumReactor(Lighthouse& lighthouse, Dispatcher& dispatcher, grpc::ByteBuffer* response)
      : lighthouse_(lighthouse),
        dispatcher_(dispatcher),
        started_(dispatcher.OnStarted(kQuorumMethod)),
        response_(response),
        charge_(dispatcher.engine().account(), MemoryKind::kCalls, Dispatcher::kRpcCost) {}

  absl::Status Enter(grpc::CallbackServerContext* context, const grpc::ByteBuffer* bytes) {
    COHORT_ASSIGN_OR_RETURN(
        const Lighthouse::Owner owner,
        lighthouse_.Admit(Method::kJoin, AccessOf(dispatcher_, *context).get()));
    const DecodeContext decode = dispatcher_.MakeDecodeContext(TimeLeft(context->raw_deadline()));
    wire::LighthouseQuorumRequest request;
    COHORT_RETURN_IF_ERROR(Parse("Quorum", bytes, &request));
    COHORT_RETURN_IF_ERROR(CheckRequester(request, decode));
    const auto size = static_cast<int64_t>(request.SpaceUsedLong());
    COHORT_RETURN_IF_ERROR(
        dispatcher_.engine().CheckRoom(MemoryKind::kCalls, size, Share::kGoingOn));
    charge_.Set(Dispatcher::kRpcCost + size);
    return lighthouse_.Enter(this, std::move(*request.mutable_requester()), owner,
                             CapWait(absl::InfiniteDuration(), decode));
  }

  // Nothing may touch `this` afterwards, unless inside a reaction or before Start returns.
  void Complete(const absl::Status& status) {
    dispatcher_.OnHandled(kQuorumMethod, status.code(), started_);
    Finish(ToGrpcStatus(status));
  }

  void End(const absl::StatusOr<grpc::ByteBuffer>& answer) override {
    if (answer.ok()) *response_ = *answer;
    Complete(answer.status());
  }
  void OnReply(Reply&& reply, DeliveryContext&) override {
    Complete(lighthouse_.Leave(this, StatusOfWait(reply)));
  }
  void OnCancel() override {
    if (!dispatcher_.engine().Cancel(handle())) return;
    Complete(lighthouse_.Leave(this, absl::CancelledError("the caller went away")));
  }
  void OnDone() override {
    Dispatcher& dispatcher = dispatcher_;
    delete this;
    dispatcher.OnGone();
  }
  // As coordinator/service/grpc/unary_call.h says.
  bool InternalInlineable() override { return true; }

  Lighthouse& lighthouse_;
  Dispatcher& dispatcher_;
  const Instant started_;
  grpc::ByteBuffer* const response_;
  SharedCharge charge_;
};

using RawService = wire::LighthouseService::WithRawCallbackMethod_Quorum<
    wire::LighthouseService::WithRawCallbackMethod_Heartbeat<wire::LighthouseService::Service>>;

class LighthouseService final : public RawService {
 public:
  LighthouseService(Lighthouse& lighthouse, Dispatcher& dispatcher)
      : lighthouse_(lighthouse), dispatcher_(dispatcher) {}

  grpc::ServerUnaryReactor* Quorum(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override {
    return QuorumReactor::Start(lighthouse_, dispatcher_, context, request, response);
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const grpc::ByteBuffer* request,
                                      grpc::ByteBuffer* response) override {
    const Instant started = dispatcher_.OnStarted(kHeartbeatMethod);
    const absl::Status status = HandleHeartbeat(*context, request);
    const grpc::Slice empty;  // the message has no fields
    *response = grpc::ByteBuffer(&empty, 1);
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    dispatcher_.OnHandled(kHeartbeatMethod, status.code(), started);
    reactor->Finish(ToGrpcStatus(status));
    dispatcher_.OnGone();
    return reactor;
  }

 private:
  absl::Status HandleHeartbeat(const grpc::CallbackServerContext& context,
                               const grpc::ByteBuffer* bytes) {
    COHORT_ASSIGN_OR_RETURN(
        const Lighthouse::Owner owner,
        lighthouse_.Admit(Method::kKeepAlive, AccessOf(dispatcher_, context).get()));
    wire::LighthouseHeartbeatRequest request;
    COHORT_RETURN_IF_ERROR(Parse("Heartbeat", bytes, &request));
    COHORT_RETURN_IF_ERROR(CheckReplicaId("replica_id", request.replica_id()));
    return lighthouse_.Heartbeat(request.replica_id(), owner);
  }

  Lighthouse& lighthouse_;
  Dispatcher& dispatcher_;
};

}  // namespace

struct LighthouseServices::Job {
  Job(int port, const QuorumOptions& options, Dispatcher& dispatcher, Alarm& alarm)
      : lighthouse(port, options, dispatcher, [&alarm](Instant at) { alarm.MoveTo(at); }),
        service(lighthouse, dispatcher) {}
  Lighthouse lighthouse;
  LighthouseService service;
};

LighthouseServices::LighthouseServices(const QuorumOptions& options, const std::vector<int>& ports,
                                       Dispatcher& dispatcher)
    : alarm_(dispatcher.engine().clock(), [this] { return TickAll(); }) {
  for (const int port : ports) {
    auto& job = jobs_[port];
    if (job == nullptr) job = std::make_unique<Job>(port, options, dispatcher, alarm_);
  }
}

LighthouseServices::~LighthouseServices() { alarm_.Stop(); }

grpc::Service* LighthouseServices::OfPort(int port) { return &jobs_.at(port)->service; }

Instant LighthouseServices::TickAll() {
  Instant next = absl::InfiniteFuture();
  for (const auto& [port, job] : jobs_) next = std::min(next, job->lighthouse.Tick());
  return next;
}

}  // namespace cohort::coordinator::torchft
