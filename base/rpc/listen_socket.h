// Sockets that listen on exactly the addresses asked for.
#ifndef COHORT_BASE_RPC_LISTEN_SOCKET_H_
#define COHORT_BASE_RPC_LISTEN_SOCKET_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/rpc/listen_address.h"

namespace cohort {

// Does not block, and is closed with this object. Of a Unix socket, the file is removed as well.
class ListenSocket {
 public:
  // One for each address that the host's name stands for. A file that a dead server left is
  // replaced. Errors: UNAVAILABLE (in use, not an address of this machine, not allowed; names it).
  static absl::StatusOr<std::vector<ListenSocket>> Open(const ListenAddress& address);

  ListenSocket(ListenSocket&& other) noexcept;
  ListenSocket& operator=(ListenSocket&&) = delete;
  ~ListenSocket();

  int fd() const { return fd_; }
  int port() const { return port_; }  // 0 of a Unix socket

 private:
  explicit ListenSocket(int fd) : fd_(fd) {}

  static absl::StatusOr<ListenSocket> OpenUnix(const ListenAddress& address);

  int fd_;
  int port_ = 0;
  std::string path_;
};

// Whether a connection waits to be accepted. Without descriptors accept fails before it looks for one.
bool ConnectionWaits(int listening_fd);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_LISTEN_SOCKET_H_
