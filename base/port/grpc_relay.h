// Carries the bytes of connections between their clients and gRPC.
//
// gRPC 1.51 parses whatever a client sends before a service sees a call, and its bounds do not
// suffice (docs/decisions.md). So threads of this library read the clients' sockets, by TLS or not,
// show the bytes to an Http2Guard, and pass them to gRPC over a pair of Unix sockets. A connection
// waits, in its own socket, while the guard or PeerAccess asks for a pause. One with many streams
// ends by resets of a few streams at a time, so that it does not occupy gRPC's threads for long.
//
// The relay's end of the pair has a name (grpc_peer.h), which gRPC tells as the peer of each call.
#ifndef COHORT_BASE_PORT_GRPC_RELAY_H_
#define COHORT_BASE_PORT_GRPC_RELAY_H_

#include "absl/status/statusor.h"
#include "base/port/limits/http2_guard.h"
#include "base/port/peer/listener_peer.h"
#include "base/unique_fd.h"

namespace cohort {

// How many descriptors a relayed connection takes.
inline constexpr int kRelayDescriptors = 3;

// Takes `fd`, a client's socket, and returns the socket for gRPC. The connection ends when either
// side does. Thread-safe. Errors: RESOURCE_EXHAUSTED (descriptors, threads): `fd` is closed.
absl::StatusOr<UniqueFd> RelayToGrpc(UniqueFd fd, const Http2Limits& limits, ListenerPeer peer);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_GRPC_RELAY_H_
