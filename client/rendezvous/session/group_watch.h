// One open stream of group events, by framed RPC or gRPC.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_WATCH_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_WATCH_H_

#include <memory>
#include <utility>

#include "client/rendezvous/session/group_session.h"

namespace cohort::client {

// Thread-safe. It lives until its end has been reported.
class GroupWatch {
 public:
  // By framed RPC if there is a connection, otherwise by gRPC.
  static std::shared_ptr<GroupWatch> Make(std::weak_ptr<GroupSession> session,
                                          std::shared_ptr<ConnectionImpl> connection,
                                          v1::WatchGroupRequest request);
  virtual ~GroupWatch() = default;

  // Once.
  virtual void Start() = 0;
  virtual void Cancel() = 0;

 protected:
  explicit GroupWatch(std::weak_ptr<GroupSession> session) : session_(std::move(session)) {}
  void OnAnswer(const v1::WatchGroupResponse& response) {
    if (const auto session = session_.lock()) session->OnWatchAnswer(this, response);
  }
  void OnEnd(const grpc::Status& status) {
    if (const auto session = session_.lock()) session->OnWatchDone(this, status);
  }

 private:
  const std::weak_ptr<GroupSession> session_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_GROUP_WATCH_H_
