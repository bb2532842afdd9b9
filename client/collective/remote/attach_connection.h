// The connection to a worker's memory, from the same host.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_ATTACH_CONNECTION_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_ATTACH_CONNECTION_H_

#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "base/shm/segment.h"
#include "base/threads/mutex.h"
#include "cohort/v1/attach.pb.h"

namespace cohort::client {

// The session lives as long as this connection; its end tells the worker that this process is gone.
// Thread-safe.
class AttachConnection {
 public:
  // `socket`: as LocalSocket::Connect takes it. Errors: UNAVAILABLE (no worker listens there:
  // another host, or another network namespace), PERMISSION_DENIED (another user's worker),
  // NOT_FOUND (no such session), DEADLINE_EXCEEDED.
  static absl::StatusOr<std::unique_ptr<AttachConnection>> Connect(absl::string_view socket,
                                                                   absl::string_view session,
                                                                   Instant deadline);

  // The session's memory.
  const shm::Segment& segment() const { return segment_; }

  // One request and its answer. Errors: those of the answer; UNAVAILABLE (the worker is gone),
  // DEADLINE_EXCEEDED: then the connection cannot be used any more.
  absl::StatusOr<v1::AttachAnswer> Ask(const v1::AttachRequest& request, absl::Span<const int> fds,
                                       Instant deadline);

  // For several requests in a row: the thread that holds the lock makes them.
  Mutex& mutex() ABSL_LOCK_RETURNED(mutex_) { return mutex_; }
  absl::StatusOr<v1::AttachAnswer> AskLocked(const v1::AttachRequest& request,
                                             absl::Span<const int> fds, Instant deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const shm::LocalSocket& socket() const { return socket_; }

 private:
  AttachConnection(shm::LocalSocket socket, shm::Segment segment)
      : socket_(std::move(socket)), segment_(std::move(segment)) {}

  Mutex mutex_;
  // Whether the answer of a request that timed out may still come. The next request would take it
  // for its own.
  bool out_of_step_ ABSL_GUARDED_BY(mutex_) = false;
  const shm::LocalSocket socket_;
  const shm::Segment segment_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_ATTACH_CONNECTION_H_
