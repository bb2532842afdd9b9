// Sockets that listen on exactly the addresses asked for.
#ifndef COHORT_BASE_PORT_SOCKET_LISTEN_SOCKET_H_
#define COHORT_BASE_PORT_SOCKET_LISTEN_SOCKET_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/port/socket/listen_address.h"

namespace cohort {

// Only the server's own user may connect to a Unix socket with this mode.
inline constexpr mode_t kPrivateMode = 0600;

// A socket that does not block. The object closes it, and removes the file of a Unix socket.
class ListenSocket {
 public:
  // Opens one socket for each address of the host's name, or takes over the inherited one. Replaces
  // the file that a dead server left. `unix_mode`: the mode of a Unix socket's file, whatever the
  // umask is; a client needs the right to write. Errors: UNAVAILABLE (in use, not an address of this
  // machine, or not allowed; names the address).
  static absl::StatusOr<std::vector<ListenSocket>> Open(const ListenAddress& address,
                                                        mode_t unix_mode = kPrivateMode);

  ListenSocket(ListenSocket&& other) noexcept;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();

  int fd() const { return fd_; }
  int port() const { return port_; }  // 0 of a Unix socket

 private:
  explicit ListenSocket(int fd) : fd_(fd) {}

  static absl::StatusOr<ListenSocket> OpenUnix(const ListenAddress& address, mode_t mode);

  int fd_;
  int port_ = 0;
  std::string path_;
};

// Whether a connection waits to be accepted. (If the process has no free descriptor, accept fails
// before it looks for a connection.)
bool ConnectionWaits(int listening_fd);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_SOCKET_LISTEN_SOCKET_H_
