// The client of a relayed connection, found by what gRPC says of the peer of a call.
//
// gRPC sees a socket of this process in place of the client's (grpc_relay.h), and tells the name of
// that socket as the peer. The kernel gives each name to one socket, so no other one can have it.
#ifndef COHORT_BASE_PORT_PEER_GRPC_PEER_H_
#define COHORT_BASE_PORT_PEER_GRPC_PEER_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base/access/peer_access.h"

namespace cohort {

struct GrpcClient {
  std::shared_ptr<PeerAccess> access;  // may be empty
  std::string address;                 // as PeerAddressAndPortOf
  std::shared_ptr<const std::atomic<bool>> closing;  // ListenerPeer::closing
};

// The name of one connection. It leads to the client as long as this object lives. Movable.
class GrpcPeerName {
 public:
  explicit GrpcPeerName(GrpcClient client);
  GrpcPeerName(GrpcPeerName&& other) noexcept;
  ~GrpcPeerName();

  // In Linux's abstract namespace.
  std::string text() const;

 private:
  uint64_t number_;  // 0: moved from
};

// `peer` is grpc::ServerContext::peer() of a call. All parts are empty if it names no relayed
// connection, or if that has ended. Thread-safe.
GrpcClient ClientOfGrpcPeer(const std::string& peer);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PEER_GRPC_PEER_H_
