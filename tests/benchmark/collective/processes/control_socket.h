// The connection of the driver and its members: short texts, each in a packet, over a Unix socket.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_CONTROL_SOCKET_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_CONTROL_SOCKET_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::benchmark {

// Movable; the destructor closes it.
class ControlSocket {
 public:
  static absl::StatusOr<ControlSocket> Connect(const std::string& path);

  ControlSocket(ControlSocket&& other) noexcept { *this = std::move(other); }
  ControlSocket& operator=(ControlSocket&& other) noexcept;
  ~ControlSocket();

  // UNAVAILABLE: the other side is gone.
  absl::Status Send(absl::string_view text);
  // Blocks until a text comes.
  absl::StatusOr<std::string> Receive();

  int fd() const { return fd_; }
  // The process on the other side.
  absl::StatusOr<pid_t> PeerPid() const;

 private:
  friend class ControlListener;
  explicit ControlSocket(int fd) : fd_(fd) {}

  int fd_ = -1;
};

// The destructor removes its file.
class ControlListener {
 public:
  // Errors: INVALID_ARGUMENT when `path` is too long for a socket.
  static absl::StatusOr<ControlListener> Listen(const std::string& path);

  ControlListener(ControlListener&& other) noexcept { *this = std::move(other); }
  ControlListener& operator=(ControlListener&& other) noexcept;
  ~ControlListener();

  int fd() const { return fd_; }
  absl::StatusOr<ControlSocket> Accept();

 private:
  ControlListener(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}

  int fd_ = -1;
  std::string path_;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_PROCESSES_CONTROL_SOCKET_H_
