// Who is at the other end of a socket, for limits and logs.
#ifndef COHORT_BASE_RPC_PEER_ADDRESS_H_
#define COHORT_BASE_RPC_PEER_ADDRESS_H_

#include <string>

namespace cohort {

// The address without a port ("10.0.0.3", "fd00::3"); "user 1000" of a Unix socket; "unknown" when
// it has gone.
std::string PeerAddressOf(int fd);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_PEER_ADDRESS_H_
