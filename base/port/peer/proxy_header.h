// The header of the PROXY protocol, with which a load balancer tells a client's address at the
// begin of a connection (https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt, versions 1
// and 2).
#ifndef COHORT_BASE_PORT_PEER_PROXY_HEADER_H_
#define COHORT_BASE_PORT_PEER_PROXY_HEADER_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// Longer ones are refused. Version 2 may have any number of bytes behind the addresses; load
// balancers send some dozens.
inline constexpr size_t kMaxProxyHeaderBytes = 1024;

struct ProxyHeader {
  size_t bytes = 0;     // of the header; 0: more bytes must come
  std::string address;  // of the client, without a port; empty: the connection is the balancer's
                        // own, as for its checks
  int port = 0;
};

// Parses the header at the front of `first`. Errors: INVALID_ARGUMENT (the bytes are no header, or
// a malformed one).
absl::StatusOr<ProxyHeader> ParseProxyHeader(absl::string_view first);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PEER_PROXY_HEADER_H_
