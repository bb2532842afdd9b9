// The socket to which the other ranks of a group connect, and the text of addresses.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_LISTENER_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_LISTENER_H_

#include <sys/socket.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/unique_fd.h"

namespace cohort::worker {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// The first address of "10.0.0.4:4123", "[fe80::1]:4123" or "host:4123"; the name of a host is
// looked up, which may take a while. Errors: INVALID_ARGUMENT (not such a text), UNAVAILABLE (no
// such host).
absl::StatusOr<SocketAddress> ResolveAddress(absl::string_view text);

// A listening socket. Movable; closed with the object.
class Listener {
 public:
  // Listens on exactly that address; `port` 0 takes a free one. Errors: UNAVAILABLE (names the
  // address).
  static absl::StatusOr<Listener> Open(const std::string& host, int port);

  int fd() const { return fd_.get(); }
  int port() const { return port_; }
  // The address to which the other ranks connect, such as "10.0.0.4:4123" or "[::1]:4123", unless
  // the host stands for all addresses of a machine.
  const std::string& address() const { return address_; }

 private:
  UniqueFd fd_;
  int port_ = 0;
  std::string address_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_LISTENER_H_
