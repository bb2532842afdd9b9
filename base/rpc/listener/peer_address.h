// The address of a socket's peer, for limits and logs.
#ifndef COHORT_BASE_RPC_LISTENER_PEER_ADDRESS_H_
#define COHORT_BASE_RPC_LISTENER_PEER_ADDRESS_H_

#include <string>

namespace cohort {

// Returns the address without a port ("10.0.0.3", "fd00::3"). For a Unix socket it returns
// "user 1000", and "unknown" if the peer has closed the connection.
std::string PeerAddressOf(int fd);
// The same with the port of an IP address: "10.0.0.3:41822", "[fd00::3]:41822".
std::string PeerAddressAndPortOf(int fd);

// Whether the connection of the socket stays on this machine.
bool IsLocal(int fd);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_LISTENER_PEER_ADDRESS_H_
