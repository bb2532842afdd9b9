// One open stream of group events. It lives until gRPC is done with it.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_WATCH_STREAM_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_WATCH_STREAM_H_

#include <memory>
#include <utility>

#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/session/group_session.h"
#include "grpcpp/client_context.h"
#include "grpcpp/support/client_callback.h"

namespace cohort::client {

// Thread-safe.
class WatchStream final : public grpc::ClientReadReactor<v1::WatchGroupResponse> {
 public:
  WatchStream(std::weak_ptr<GroupSession> session, std::shared_ptr<ConnectionImpl> connection,
              v1::WatchGroupRequest request)
      : session_(std::move(session)),
        connection_(std::move(connection)),
        request_(std::move(request)) {}

  // `self` owns this.
  void Start(std::shared_ptr<WatchStream> self) {
    self_ = std::move(self);
    connection_->stubs().Get<v1::GroupService>().async()->WatchGroup(&context_, &request_, this);
    StartRead(&response_);
    StartCall();
  }
  void Cancel() { context_.TryCancel(); }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (auto session = session_.lock()) session->OnWatchAnswer(this, response_);
    response_.Clear();
    StartRead(&response_);
  }
  void OnDone(const grpc::Status& status) override {
    const std::shared_ptr<WatchStream> self = std::move(self_);
    if (auto session = session_.lock()) session->OnWatchDone(this, status);
  }

 private:
  const std::weak_ptr<GroupSession> session_;
  const std::shared_ptr<ConnectionImpl> connection_;
  const v1::WatchGroupRequest request_;
  grpc::ClientContext context_;
  v1::WatchGroupResponse response_;
  std::shared_ptr<WatchStream> self_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_WATCH_STREAM_H_
