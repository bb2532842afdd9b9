// Sends messages with file descriptors between processes of one host.
#ifndef COHORT_BASE_SHM_LOCAL_SOCKET_H_
#define COHORT_BASE_SHM_LOCAL_SOCKET_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/unique_fd.h"

namespace cohort::shm {

// A connection that delivers whole messages in order. Movable. Methods that wait take a deadline
// (steady time).
class LocalSocket {
 public:
  static constexpr size_t kMaxBytes = 4096;
  static constexpr size_t kMaxFds = 128;

  struct Message {
    std::string bytes;
    std::vector<UniqueFd> fds;
  };
  struct Peer {
    pid_t pid = 0;  // 0: this process cannot see the peer's process
    uid_t uid = 0;
  };

  LocalSocket() = default;
  // Errors: UNAVAILABLE (no process listens at the name in this network namespace).
  static absl::StatusOr<LocalSocket> Connect(absl::string_view name, Instant deadline);

  // Sends 1 to kMaxBytes bytes and at most kMaxFds descriptors, which stay the caller's. Errors:
  // UNAVAILABLE (the other side is gone), DEADLINE_EXCEEDED, INVALID_ARGUMENT (too much).
  absl::Status Send(absl::string_view bytes, absl::Span<const int> fds, Instant deadline) const;
  // Errors: UNAVAILABLE (the other side is gone), DEADLINE_EXCEEDED.
  absl::StatusOr<Message> Receive(Instant deadline) const;

  // The process and user at the other end, as the kernel reports them.
  Peer peer() const;
  // Readable when a message has arrived or the other side is gone.
  int fd() const { return fd_.get(); }

 private:
  friend class LocalListener;
  explicit LocalSocket(UniqueFd fd) : fd_(std::move(fd)) {}

  UniqueFd fd_;
};

// Listens at a name of its own. The name exists as long as this object, in the process's network
// namespace.
class LocalListener {
 public:
  LocalListener() = default;
  // Errors: RESOURCE_EXHAUSTED (no descriptors).
  static absl::StatusOr<LocalListener> Create();

  const std::string& name() const { return name_; }
  // Errors: DEADLINE_EXCEEDED.
  absl::StatusOr<LocalSocket> Accept(Instant deadline) const;
  int fd() const { return fd_.get(); }

 private:
  LocalListener(UniqueFd fd, std::string name) : fd_(std::move(fd)), name_(std::move(name)) {}

  UniqueFd fd_;
  std::string name_;
};

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_LOCAL_SOCKET_H_
