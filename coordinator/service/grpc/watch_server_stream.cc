#include "coordinator/service/grpc/watch_server_stream.h"

#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/port/peer/grpc_peer.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/status_conversion.h"
#include "coordinator/service/engine/discard_reply.h"
#include "coordinator/service/grpc/byte_buffer.h"
#include "coordinator/service/grpc/caller_access.h"
#include "grpcpp/support/proto_buffer_reader.h"

namespace cohort::coordinator {

grpc::ServerWriteReactor<grpc::ByteBuffer>* WatchServerStream::Start(
    Dispatcher& dispatcher, Method method, grpc::CallbackServerContext* context,
    const grpc::ByteBuffer* request) {
  auto* const stream = new WatchServerStream(dispatcher, method);
  stream->Begin(context, request);
  return stream;
}

WatchServerStream::WatchServerStream(Dispatcher& dispatcher, Method method)
    : dispatcher_(dispatcher),
      method_(method),
      started_(dispatcher.OnStarted(method)),
      charge_(dispatcher.engine().account(), MemoryKind::kCalls, Dispatcher::kRpcCost),
      output_(dispatcher.engine().account(), MemoryKind::kOutput) {}

void WatchServerStream::Begin(grpc::CallbackServerContext* context,
                              const grpc::ByteBuffer* request) {
  absl::Status status = absl::InternalError("the request could not be read");
  {
    grpc::ByteBuffer copy(*request);
    grpc::ProtoBufferReader reader(&copy);
    if (reader.status().ok()) {
      access_ = AccessOf(dispatcher_, *context);
      status = dispatcher_.Decode(method_, access_.get(), &reader, copy.Length(),
                                  TimeLeft(context->raw_deadline()), &call_, &asker_);
    }
  }
  closing_ = ClientOfGrpcPeer(context->peer()).closing;
  if (status.ok()) status = tenant_stream_.Begin(dispatcher_.engine(), call_.caller.key.tenant);
  dispatcher_.CountRequest(access_.get(), call_.caller, TenantRates::kGrpcRequest, 0);
  if (!status.ok()) return Complete(status);
  charge_.MoveTo(tenant_stream_.account());
  output_.MoveTo(tenant_stream_.account());
  // A client that opens a broken watch again learns from it that the coordinator has restarted, and
  // that revisions may stand for other events now.
  context->AddInitialMetadata("cohort-server-incarnation",
                              absl::StrCat(dispatcher_.engine().server_incarnation()));
  const auto* const watch = std::get_if<WatchGroupCall>(&call_.body);
  // Receipts are acknowledged by the first step alone.
  if (watch == nullptr || !watch->attach) {
    StartSendInitialMetadata();
    return;
  }
  stream_ = dispatcher_.NewStreamNumber();
  attaching_ = true;
  attached_as_ = call_.caller.identity;
  Submit(MakeAttachCall(call_.caller, stream_, /*closed=*/false, /*by_us=*/false));
}

void WatchServerStream::Step() {
  Call call = call_;
  call_.caller.acknowledged.clear();
  call_.caller.abandoned.clear();
  Submit(std::move(call));
}

void WatchServerStream::Submit(Call call) {
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    cancelled = cancelled_;
    waiting_ = !cancelled;
  }
  if (cancelled) return CallerWent();
  CallHandle handle;
  dispatcher_.engine().Submit(std::move(call), this, &handle);
  {
    MutexLock lock(&mutex_);
    // The step after this one may have been submitted meanwhile, by another thread.
    if (handle.id > handle_.id) handle_ = handle;
    cancelled = cancelled_;
  }
  // OnCancel may have come in between and not have known the handle. Handles are never reused, so
  // if the reply was faster, this finds nothing.
  if (cancelled && dispatcher_.engine().Cancel(handle)) {
    CallerWent();
  }
}

void WatchServerStream::OnReply(Reply&& reply, DeliveryContext& context) {
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    waiting_ = false;
    cancelled = cancelled_;
  }
  if (attaching_) {
    attaching_ = false;
    if (!reply.status.ok()) {
      stream_ = 0;
      dispatcher_.LogRefusal(method_, reply.status, access_.get());
      return Complete(EncodeStatus(reply, context.now));
    }
    if (cancelled) return CallerWent();
    // The first step is taken in the reaction to this. It also shows the caller that the watch
    // stands.
    StartSendInitialMetadata();
    return;
  }
  if (cancelled) return CallerWent();
  // Its rights may have ended while it waited.
  absl::Status status = dispatcher_.Admit(method_, access_.get(), &call_.caller);
  MessageBytes message;
  if (status.ok()) status = dispatcher_.Encode(method_, reply, asker_, context, &message);
  if (!status.ok()) return Complete(status);
  const auto size = static_cast<int64_t>(message.own_size());
  const absl::Status room = CheckRoom(tenant_stream_.account(), MemoryKind::kOutput, size,
                                      dispatcher_.engine().limits(), Share::kGoingOn);
  if (!room.ok()) return Complete(room);
  output_.Set(size);
  if (const auto* group = std::get_if<WatchGroupReply>(&reply.body)) {
    std::get<WatchGroupCall>(call_.body).from_revision = group->revision;
    last_ = group->closed;
  } else if (const auto* keys = std::get_if<WatchKeysReply>(&reply.body)) {
    std::get<WatchKeysCall>(call_.body).from_revision = keys->revision;
  }
  message_ = ToByteBuffer(message);
  StartWrite(&message_);
}

absl::Status WatchServerStream::CheckRights() {
  return dispatcher_.AdmitAgain(method_, access_.get(), asker_.key, asker_.session);
}

void WatchServerStream::OnSendInitialMetadataDone(bool ok) {
  if (!ok) return CallerWent();
  Step();
}

void WatchServerStream::OnWriteDone(bool ok) {
  message_.Clear();
  output_.Set(0);
  if (!ok) return CallerWent();
  if (last_) return Complete(absl::OkStatus());
  Step();
}

void WatchServerStream::OnCancel() {
  CallHandle handle;
  {
    MutexLock lock(&mutex_);
    cancelled_ = true;
    if (waiting_) handle = handle_;
  }
  if (dispatcher_.engine().Cancel(handle)) {
    CallerWent();
  }
}

void WatchServerStream::CallerWent() {
  by_us_ = closing_ != nullptr && closing_->load();
  Complete(absl::CancelledError("the caller went away"));
}

void WatchServerStream::Complete(const absl::Status& status) {
  if (stream_ != 0) {
    Call call = MakeAttachCall(call_.caller, stream_, /*closed=*/true, by_us_);
    call.caller.identity = attached_as_;
    dispatcher_.engine().Submit(std::move(call), DiscardReply::Get());
  }
  dispatcher_.OnHandled(method_, status.code(), started_);
  Finish(ToGrpcStatus(status));
}

void WatchServerStream::OnDone() {
  Dispatcher& dispatcher = dispatcher_;
  delete this;
  dispatcher.OnGone();
}

}  // namespace cohort::coordinator
