#include "coordinator/service/framed_rpc/framed_rpc_handler.h"

#include <utility>

#include "absl/strings/string_view.h"
#include "base/access/peer_access.h"
#include "base/framed_rpc/server/server_connection.h"
#include "base/status_macros.h"
#include "coordinator/service/dispatch/unread_answers.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/engine/reply_sink.h"
#include "coordinator/service/framed_rpc/framed_group_watch.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace cohort::coordinator {
namespace {

// Keeps itself alive while the engine has it.
class FramedRpcCall final : public framed_rpc::ServerCall,
                            private ReplySink,
                            public std::enable_shared_from_this<FramedRpcCall> {
 public:
  FramedRpcCall(Dispatcher& dispatcher, const framed_rpc::Request& request, Method method)
      : ServerCall(request, dispatcher.OnStarted(method)),
        dispatcher_(dispatcher),
        method_(method) {}
  ~FramedRpcCall() override { dispatcher_.OnGone(); }

  void Start(const framed_rpc::Request& request) {
    const absl::string_view bytes = request.message;
    PeerAccess* const access = request.connection.peer().access.get();
    google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
    const auto size = static_cast<int64_t>(bytes.size());
    if (GetMethod(method_).decode == nullptr) {
      dispatcher_.CountRequest(access, Caller(), TenantRates::kFramedRequest, size);
      MessageBytes message;
      const absl::Status status = dispatcher_.Run(method_, access, &stream, &message);
      return Finish(status, message, nullptr);
    }
    Call call;
    const absl::Status status = dispatcher_.Decode(method_, access, &stream, bytes.size(),
                                                   request.time_left, &call, &asker_);
    dispatcher_.CountRequest(access, call.caller, TenantRates::kFramedRequest, size);
    if (!status.ok()) return Finish(status, MessageBytes(), nullptr);
    self_ = shared_from_this();
    dispatcher_.engine().Submit(std::move(call), this, &handle_);
  }

  bool Cancel() override {
    if (!dispatcher_.engine().Cancel(handle_)) return false;
    const std::shared_ptr<FramedRpcCall> last = std::move(self_);
    dispatcher_.OnHandled(method_, absl::StatusCode::kCancelled, started());
    return true;
  }

 private:
  void OnReply(Reply&& reply, DeliveryContext& context) override {
    const std::shared_ptr<FramedRpcCall> last = std::move(self_);
    MessageBytes message;
    const absl::Status status = dispatcher_.Encode(method_, reply, asker_, context, &message);
    Finish(status, message, &context.batch);
  }

  absl::Status CheckRights() override {
    return dispatcher_.AdmitAgain(method_, connection().peer().access.get(), asker_.key,
                                  asker_.session);
  }

  void Finish(const absl::Status& status, const MessageBytes& message,
              framed_rpc::ReplyBatch* batch) {
    dispatcher_.OnHandled(method_, status.code(), started());
    SendReply(status, message.pieces(), batch);
  }

  Dispatcher& dispatcher_;
  const Method method_;
  CallHandle handle_;
  Asker asker_;
  std::shared_ptr<FramedRpcCall> self_;  // while the engine has it
};

}  // namespace

bool IsFramedMethod(Method method) {
  switch (method) {
    case Method::kUpload:
    case Method::kDownload:
    case Method::kWatch:
    case Method::kListGroups:
    case Method::kDumpWaits:
      return false;
    default:
      return true;
  }
}

FramedRpcHandler::FramedRpcHandler(Dispatcher& dispatcher, absl::Duration ping_timeout)
    : dispatcher_(dispatcher),
      ping_timeout_(ping_timeout) {
  for (size_t i = 0; i < kMethodCount; ++i) {
    const Method method = static_cast<Method>(i);
    if (IsFramedMethod(method)) methods_.push_back(method);
  }
}

std::vector<std::string> FramedRpcHandler::MethodNames() const {
  std::vector<std::string> names;
  for (const Method method : methods_) names.push_back(GetMethod(method).path());
  return names;
}

absl::Status FramedRpcHandler::Start(const framed_rpc::Request& request) {
  const Method method = methods_[request.method];
  if (method == Method::kWatchGroup) {
    const auto watch = std::make_shared<FramedGroupWatch>(dispatcher_, request, ping_timeout_);
    COHORT_RETURN_IF_ERROR(request.connection.Add(watch));
    watch->Start(request);
    return absl::OkStatus();
  }
  const auto call = std::make_shared<FramedRpcCall>(dispatcher_, request, method);
  COHORT_RETURN_IF_ERROR(request.connection.Add(call));
  call->Start(request);
  return absl::OkStatus();
}

std::unique_ptr<framed_rpc::UnreadCharge> FramedRpcHandler::ChargeUnread(PeerAccess* access) {
  Engine& engine = dispatcher_.engine();
  std::string tenant;
  if (access != nullptr) {
    tenant = std::string(access->Current(engine.clock().Now())->OwnTenant());
  }
  return std::make_unique<UnreadAnswers>(
      engine, tenant.empty() ? engine.shared_account() : engine.tenants().Of(tenant));
}

}  // namespace cohort::coordinator
