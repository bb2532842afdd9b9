// The socket to which the other ranks of a group connect, and the text of addresses.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_LISTENER_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_LISTENER_H_

#include <sys/socket.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/unique_fd.h"

namespace cohort::worker {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// The addresses of "10.0.0.4:4123", "[fe80::1]:4123" or "host:4123", at least one, in the order to
// try; the name of a host is looked up, which may take a while. Errors: INVALID_ARGUMENT (not such
// a text), UNAVAILABLE (no such host).
absl::StatusOr<std::vector<SocketAddress>> ResolveAddresses(absl::string_view text);

// Whether no other host reaches the address: 127.0.0.0/8, ::1 and their IPv4-mapped form.
bool IsLoopback(const SocketAddress& address);

// A listening socket. Movable; closed with the object.
class Listener {
 public:
  // Listens on the host's first address that this machine has, loopback addresses last. `port` 0
  // takes a free one, of COHORT_PORT_RANGE if that is set. Errors: UNAVAILABLE (names the address);
  // RESOURCE_EXHAUSTED (no port of the range is free); INVALID_ARGUMENT (the range's syntax).
  static absl::StatusOr<Listener> Open(const std::string& host, int port);

  int fd() const { return fd_.get(); }
  int port() const { return port_; }
  // The address to which the other ranks connect, such as "10.0.0.4:4123" or "[::1]:4123", unless
  // the host stands for all addresses of a machine.
  const std::string& address() const { return address_; }
  bool is_loopback() const { return is_loopback_; }

 private:
  UniqueFd fd_;
  int port_ = 0;
  bool is_loopback_ = false;
  std::string address_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_LISTENER_H_
