#include "coordinator/service/framed_rpc/framed_rpc_call.h"

#include <utility>

#include "coordinator/service/framed_rpc/framed_rpc_connection.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace cohort::coordinator {

FramedRpcCall::FramedRpcCall(Dispatcher& dispatcher,
                             std::shared_ptr<FramedRpcConnection> connection, uint32_t id,
                             Method method)
    : dispatcher_(dispatcher),
      connection_(std::move(connection)),
      id_(id),
      method_(method),
      started_(dispatcher.OnStarted(method)) {}

FramedRpcCall::~FramedRpcCall() { dispatcher_.OnGone(); }

void FramedRpcCall::Start(absl::string_view request, absl::Duration time_left) {
  google::protobuf::io::ArrayInputStream stream(request.data(), static_cast<int>(request.size()));
  if (GetMethod(method_).decode == nullptr) {
    MessageBytes message;
    const absl::Status status = dispatcher_.Run(method_, &stream, &message);
    return Finish(status, message, nullptr);
  }
  Call call;
  const absl::Status status =
      dispatcher_.Decode(method_, &stream, request.size(), time_left, &call, &asker_);
  if (!status.ok()) return Finish(status, MessageBytes(), nullptr);
  self_ = shared_from_this();
  dispatcher_.engine().Submit(std::move(call), this, &handle_);
}

void FramedRpcCall::OnReply(Reply&& reply, DeliveryContext& context) {
  const std::shared_ptr<FramedRpcCall> last = std::move(self_);
  MessageBytes message;
  const absl::Status status = dispatcher_.Encode(method_, reply, asker_, context, &message);
  Finish(status, message, &context);
}

void FramedRpcCall::Finish(const absl::Status& status, const MessageBytes& message,
                           DeliveryContext* context) {
  dispatcher_.OnHandled(method_, status.code(), started_);
  connection_->Reply(this, id_, status, message, context);
}

void FramedRpcCall::Cancel() {
  if (!dispatcher_.engine().Cancel(handle_)) return;
  const std::shared_ptr<FramedRpcCall> last = std::move(self_);
  dispatcher_.OnHandled(method_, absl::StatusCode::kCancelled, started_);
}

}  // namespace cohort::coordinator
