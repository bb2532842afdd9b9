// The stream of OpenSession: sends events to the client, and notices its end.
#ifndef COHORT_WORKER_DAEMON_METHODS_STREAMS_SESSION_STREAM_H_
#define COHORT_WORKER_DAEMON_METHODS_STREAMS_SESSION_STREAM_H_

#include <deque>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/threads/mutex.h"
#include "cohort/v1/worker.grpc.pb.h"
#include "worker/daemon/sessions/session_table.h"

namespace cohort::worker {

// Deletes itself in OnDone, which gRPC calls last.
class SessionStream final : public grpc::ServerWriteReactor<v1::SessionEvent>,
                            private Session::Listener {
 public:
  // For an opened session; sends `opened` first.
  SessionStream(SessionTable& sessions, std::shared_ptr<Session> session,
                const v1::SessionEvent& opened);
  // For a session that was refused.
  SessionStream(SessionTable& sessions, const absl::Status& error);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  // A client that leaves this many events unread is disconnected.
  static constexpr size_t kMaxUnread = 1024;

  void OnEvent(const v1::SessionEvent& event) override;
  void OnEnded(absl::string_view cause) override;
  void Close(const absl::Status& status);
  void CloseLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  SessionTable& sessions_;
  const std::shared_ptr<Session> session_;  // null: refused
  Mutex mutex_;
  // The first event is being written.
  std::deque<v1::SessionEvent> events_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status last_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_STREAMS_SESSION_STREAM_H_
