#include "coordinator/service/grpc/unary_call.h"

#include <utility>

#include "base/rpc/grpc_deadline.h"
#include "base/rpc/status_conversion.h"
#include "base/status_macros.h"
#include "base/threads/thread_time.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/service/grpc/byte_buffer.h"
#include "coordinator/service/grpc/caller_access.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace cohort::coordinator {

grpc::ServerUnaryReactor* UnaryCall::Start(Dispatcher& dispatcher, Method method,
                                           grpc::CallbackServerContext* context,
                                           const grpc::ByteBuffer* request,
                                           grpc::ByteBuffer* response) {
  auto* const call = new UnaryCall(dispatcher, method, context, response);
  // gRPC deletes nothing before this function has returned, even when the call is finished in here.
  call->Handle(request);
  return call;
}

UnaryCall::UnaryCall(Dispatcher& dispatcher, Method method, grpc::CallbackServerContext* context,
                     grpc::ByteBuffer* response)
    : dispatcher_(dispatcher),
      method_(method),
      started_(dispatcher.OnStarted(method)),
      context_(*context),
      response_(response),
      charge_(dispatcher.engine().account(), MemoryKind::kCalls, Dispatcher::kRpcCost) {}

void UnaryCall::Handle(const grpc::ByteBuffer* request) {
  // The buffer is not really const. It is emptied below, so that a parked call does not keep its
  // request.
  auto* const bytes = const_cast<grpc::ByteBuffer*>(request);
  const absl::Duration begin = ThreadTime();
  access_ = AccessOf(dispatcher_, context_);
  const auto size = static_cast<int64_t>(bytes->Length());
  Call call;
  absl::Status status;
  {
    grpc::ProtoBufferReader reader(bytes);
    if (!reader.status().ok()) {
      status = absl::InternalError("the request could not be read");
    } else if (GetMethod(method_).decode == nullptr) {
      dispatcher_.CountRequest(access_.get(), Caller(), TenantRates::kGrpcRequest, size);
      MessageBytes message;
      status = dispatcher_.Run(method_, access_.get(), &reader, &message);
      if (status.ok()) status = SetResponse(message);
      return Complete(status);
    } else {
      status = dispatcher_.Decode(method_, access_.get(), &reader, bytes->Length(),
                                  TimeLeft(context_.raw_deadline()), &call, &asker_);
    }
  }
  bytes->Clear();
  dispatcher_.CountRequest(access_.get(), call.caller, TenantRates::kGrpcRequest, size);
  if (!status.ok()) return Complete(status);
  call.service_bytes = Dispatcher::kRpcCost;
  dispatcher_.engine().Submit(std::move(call), this, &handle_);
  // Many calls are over by now.
  dispatcher_.CountTime(asker_.key.tenant, ThreadTime() - begin);
}

void UnaryCall::OnReply(Reply&& reply, DeliveryContext& context) {
  MessageBytes message;
  absl::Status status = dispatcher_.Encode(method_, reply, asker_, context, &message);
  if (status.ok()) status = SetResponse(message);
  Complete(status);
}

absl::Status UnaryCall::SetResponse(const MessageBytes& message) {
  // Members of a full coordinator still get their short answers, and operators theirs.
  constexpr size_t kUncheckedBytes = 1024;
  const auto more = static_cast<int64_t>(message.own_size());
  if (Engine& engine = dispatcher_.engine(); !asker_.key.tenant.empty()) {
    account_ = engine.tenants().Of(asker_.key.tenant);
    charge_.MoveTo(*account_);
    // An answer that shares large bytes keeps its call, too, until the client reads it.
    if (message.size() > kUncheckedBytes) {
      COHORT_RETURN_IF_ERROR(
          CheckRoom(*account_, MemoryKind::kCalls, more, engine.limits(), Share::kGoingOn));
    }
  }
  charge_.Set(Dispatcher::kRpcCost + more);
  *response_ = ToByteBuffer(message);
  return absl::OkStatus();
}

absl::Status UnaryCall::CheckRights() {
  return dispatcher_.AdmitAgain(method_, access_.get(), asker_.key, asker_.session);
}

bool UnaryCall::IsInVain() { return context_.IsCancelled(); }

void UnaryCall::Complete(const absl::Status& status) {
  dispatcher_.OnHandled(method_, status.code(), started_);
  Finish(ToGrpcStatus(status));
}

void UnaryCall::OnCancel() {
  if (dispatcher_.engine().Cancel(handle_)) {
    Complete(absl::CancelledError("the caller went away"));
  }
}

void UnaryCall::OnDone() {
  Dispatcher& dispatcher = dispatcher_;
  delete this;
  dispatcher.OnGone();
}

}  // namespace cohort::coordinator
