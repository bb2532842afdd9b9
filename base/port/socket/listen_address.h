// Addresses to listen on, in the form of flags.
#ifndef COHORT_BASE_PORT_SOCKET_LISTEN_ADDRESS_H_
#define COHORT_BASE_PORT_SOCKET_LISTEN_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

struct ListenAddress {
  std::string text;  // as it was written
  std::string host;  // without brackets; empty for a path
  int port = 0;
  std::string path;  // of a Unix socket
  int fd = -1;       // a listening socket that the process inherited; host and port are its own

  bool is_unix() const { return !path.empty(); }
  // Whether only this machine can reach it: 127.0.0.0/8, ::1, localhost, Unix sockets.
  bool is_loopback() const;
  // The address with `bound_port` as its port; a path stays as it is.
  std::string WithPort(int bound_port) const;
};

// "10.0.0.4:7700", "[::1]:7700"; `host` may have its brackets already.
std::string HostAndPort(absl::string_view host, int port);

// "ADDRESS,PROTOCOL,...": an address with the protocols that it serves.
struct AddressAndProtocols {
  std::string address;
  std::vector<std::string> protocols;  // empty: the text names none
};
// A Unix socket names no protocols, because a path may have commas.
AddressAndProtocols SplitProtocols(absl::string_view text);

// Parses host:port, [IPv6]:port, unix:/path, or fd://N for a socket that already listens. Errors:
// INVALID_ARGUMENT (another form; the descriptor is no listening TCP socket).
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_SOCKET_LISTEN_ADDRESS_H_
