// Sends messages with file descriptors between processes of one host.
#ifndef COHORT_BASE_SHM_LOCAL_SOCKET_H_
#define COHORT_BASE_SHM_LOCAL_SOCKET_H_

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/shm/host_folder.h"
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
  // `name`: a listener's name, or a path, as HostFolder::AddressOf returns them. Errors:
  // UNAVAILABLE (no process listens at the name in this network namespace, or no process of this
  // user at the path).
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
// namespace, and as a file of a folder if there is one. One thread accepts.
class LocalListener {
 public:
  LocalListener() = default;
  // Only processes of this user can connect to the file. Errors: RESOURCE_EXHAUSTED (no
  // descriptors), those of HostFolder::Failed (such as a folder that cannot be written to).
  static absl::StatusOr<LocalListener> Create(const HostFolder& folder = {});

  const std::string& name() const { return name_; }
  // Errors: DEADLINE_EXCEEDED.
  absl::StatusOr<LocalSocket> Accept(Instant deadline) const;
  // Closes connections that were not accepted, and lets processes that come later fail at once.
  void RejectAll() const;
  // Readable when there is a connection to accept.
  int fd() const { return file_ == nullptr ? fd_.get() : both_.get(); }

 private:
  // Removes the file.
  struct File {
    ~File();
    std::string path;
    pid_t maker;
  };

  UniqueFd fd_;
  std::string name_;
  std::unique_ptr<const File> file_;  // null: no folder
  UniqueFd in_folder_;
  UniqueFd both_;                      // readable when one of the two is
  mutable bool folder_first_ = false;  // for the thread that accepts
};

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_LOCAL_SOCKET_H_
