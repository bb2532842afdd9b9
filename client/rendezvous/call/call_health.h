// Whether the coordinator serves a call that waits, for reports to its caller.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CALL_HEALTH_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CALL_HEALTH_H_

#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/connection/connection_impl.h"
#include "grpcpp/support/status.h"

namespace cohort::client {

// The health of one call at the coordinator: whether it is served, refused or unanswered.
// Thread-safe; borrows the connection.
class CallHealth {
 public:
  // `may_wait`: an answer may take as long as the call.
  CallHealth(ConnectionImpl& connection, Instant deadline, bool may_wait)
      : connection_(connection), deadline_(deadline), may_wait_(may_wait) {}

  // As CallLimits::on_repeat.
  void OnRepeat(const grpc::Status& failure, absl::Duration pause);
  // False, after a call of on_away, when the coordinator does not serve the call now.
  bool Served();
  // The coordinator gave no answer to another call either.
  void NotifySilent(absl::string_view detail) { Notify(AwayKind::kSilent, std::string(detail)); }

 private:
  void Notify(AwayKind kind, std::string detail) const;

  ConnectionImpl& connection_;
  const Instant deadline_;
  const bool may_wait_;

  Mutex mutex_;
  grpc::Status failure_ ABSL_GUARDED_BY(mutex_);
  Instant refused_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CALL_HEALTH_H_
