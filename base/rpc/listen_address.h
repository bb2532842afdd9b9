// Addresses to listen on, as people write them.
#ifndef COHORT_BASE_RPC_LISTEN_ADDRESS_H_
#define COHORT_BASE_RPC_LISTEN_ADDRESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

struct ListenAddress {
  std::string text;  // as it was written
  std::string host;  // without brackets; empty for a path
  int port = 0;
  std::string path;  // of a Unix socket

  bool is_unix() const { return !path.empty(); }
  // Only this machine can reach it: 127.0.0.0/8, ::1, localhost, Unix sockets.
  bool is_loopback() const;
  // With the port that was given for 0.
  std::string WithPort(int bound_port) const;
};

// host:port, [IPv6]:port, unix:/path. Errors: INVALID_ARGUMENT.
absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_LISTEN_ADDRESS_H_
