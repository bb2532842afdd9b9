// The stream of OpenSession: what a client is told, and how its end is noticed.
#ifndef COHORT_WORKER_SERVICE_SESSION_STREAM_H_
#define COHORT_WORKER_SERVICE_SESSION_STREAM_H_

#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "worker/service/session_table.h"

namespace cohort::worker {

// Deletes itself when gRPC is done with it.
class SessionStream final : public grpc::ServerWriteReactor<v1::SessionEvent>,
                            private Session::Listener {
 public:
  // Of a session that was opened; `opened` is told first.
  SessionStream(SessionTable& sessions, std::shared_ptr<Session> session,
                const v1::SessionEvent& opened);
  // Of a refusal.
  SessionStream(SessionTable& sessions, const absl::Status& refusal);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // A client that reads nothing is sent away.
  static constexpr size_t kMaxUnread = 1024;

  void OnEvent(const v1::SessionEvent& event) override;
  void OnEnded(absl::string_view cause) override;
  void Close(const absl::Status& status);
  void CloseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  SessionTable& sessions_;
  const std::shared_ptr<Session> session_;  // null: refused
  Mutex mutex_;
  // The first is being written.
  std::deque<v1::SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_SESSION_STREAM_H_
