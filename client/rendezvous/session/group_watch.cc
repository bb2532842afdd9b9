#include "client/rendezvous/session/group_watch.h"

#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "base/framed_rpc/client/client_connection.h"
#include "base/framed_rpc/client/framed_rpc_channel.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/call/framed_request.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

namespace cohort::client {
namespace {

constexpr absl::string_view kPath = "cohort.v1.GroupService/WatchGroup";

class GrpcGroupWatch final : public GroupWatch,
                             public grpc::ClientReadReactor<v1::WatchGroupResponse>,
                             public std::enable_shared_from_this<GrpcGroupWatch> {
 public:
  GrpcGroupWatch(std::weak_ptr<GroupSession> session, std::shared_ptr<ConnectionImpl> connection,
                 v1::WatchGroupRequest request)
      : GroupWatch(std::move(session)),
        connection_(std::move(connection)),
        request_(std::move(request)) {}

  void Start() override {
    self_ = shared_from_this();
    connection_->stubs().Get<v1::GroupService>().async()->WatchGroup(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() override { context_.TryCancel(); }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return;
    OnAnswer(response_);
    response_.Clear();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<GrpcGroupWatch> self = std::move(self_);
    OnEnd(status);
  }

  const std::shared_ptr<ConnectionImpl> connection_;
  const v1::WatchGroupRequest request_;
  grpc::ClientContext context_;
  v1::WatchGroupResponse response_;
  std::shared_ptr<GrpcGroupWatch> self_;  // until gRPC is done with it
};

class FramedGroupWatch final : public GroupWatch,
                               public framed_rpc::ClientConnection::Waiter,
                               public std::enable_shared_from_this<FramedGroupWatch> {
 public:
  FramedGroupWatch(std::weak_ptr<GroupSession> session, framed_rpc::Route route,
                   const v1::WatchGroupRequest& request)
      : GroupWatch(std::move(session)), route_(std::move(route)), frame_(MakeFrame(request)) {}

  void Start() override {
    uint32_t id = 0;
    if (!route_.connection->StartStream(route_.method, std::move(frame_), shared_from_this(),
                                        &id)) {
      return OnEnd(grpc::Status(grpc::StatusCode::UNAVAILABLE, "the connection broke"));
    }
    bool cancelled = false;
    {
      MutexLock lock(&mutex_);
      id_ = id;
      cancelled = cancelled_;
    }
    if (cancelled) route_.connection->Cancel(id);
  }

  void Cancel() override {
    uint32_t id = 0;
    {
      MutexLock lock(&mutex_);
      cancelled_ = true;
      id = id_;
    }
    if (id != 0) route_.connection->Cancel(id);
  }

 private:
  void OnPart(uint32_t id, absl::string_view body) override {
    v1::WatchGroupResponse response;
    if (!response.ParseFromArray(body.data(), static_cast<int>(body.size()))) {
      return route_.connection->Cancel(id);
    }
    OnAnswer(response);
    route_.connection->Next(id);
  }
  void OnReply(const grpc::Status& status, absl::string_view) override { OnEnd(status); }

  const framed_rpc::Route route_;
  std::string frame_;
  Mutex mutex_;
  uint32_t id_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: not started
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

std::shared_ptr<GroupWatch> GroupWatch::Make(std::weak_ptr<GroupSession> session,
                                             std::shared_ptr<ConnectionImpl> connection,
                                             v1::WatchGroupRequest request) {
  framed_rpc::Route route = connection->framed_channel().RouteOf(kPath);
  if (route.connection != nullptr) {
    return std::make_shared<FramedGroupWatch>(std::move(session), std::move(route), request);
  }
  return std::make_shared<GrpcGroupWatch>(std::move(session), std::move(connection),
                                          std::move(request));
}

}  // namespace cohort::client
