// The address of a socket's peer, for limits and logs.
#ifndef COHORT_BASE_PORT_PEER_PEER_ADDRESS_H_
#define COHORT_BASE_PORT_PEER_PEER_ADDRESS_H_

#include <string>

namespace cohort {

// Returns the address without a port ("10.0.0.3", "fd00::3"). For a Unix socket it returns
// "user 1000", and "unknown" if the peer has closed the connection.
std::string PeerAddressOf(int fd);
// The same with the port of an IP address: "10.0.0.3:41822", "[fd00::3]:41822".
std::string PeerAddressAndPortOf(int fd);

// The client that limits count: the address itself, but for IPv6 the network of 64 bits, such as
// "2001:db8:0:7::/64", in which one client may have any address. Link-local addresses and those
// that are not of IPv6 stay as they are.
std::string CountedAddress(const std::string& address);

// Whether the connection of the socket stays on this machine.
bool IsLocal(int fd);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PEER_PEER_ADDRESS_H_
