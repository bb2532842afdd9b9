// The facts that the listener passes to a server with each connection.
#ifndef COHORT_BASE_PORT_PEER_LISTENER_PEER_H_
#define COHORT_BASE_PORT_PEER_LISTENER_PEER_H_

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/access/role.h"
#include "base/clock.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/tls/tls_session.h"

namespace cohort {

// Facts about a client and its address.
struct ListenerPeer {
  // The address has broken a limit recently. All its connections share it.
  std::shared_ptr<const std::atomic<bool>> suspect = std::make_shared<std::atomic<bool>>(false);
  // The server calls it once if it closes a connection for the bytes that it sent.
  // Thread-safe.
  std::function<void(const absl::Status&)> on_offence = [](const absl::Status&) {};
  // With its port, for logs: "10.0.0.3:41822"; "user 1000" at a Unix socket.
  std::string address;
  // As limits count it: without its port, and of IPv6 the network alone.
  std::string counted_address;
  // The incoming bytes of all connections of the address; null: not counted.
  std::shared_ptr<IncompleteRequestBytes> incoming;
  // Those of clients of the address that have had no role yet, which have a lower limit. They count
  // for `incoming`, too. Null: all have the same limit.
  std::shared_ptr<IncompleteRequestBytes> incoming_without_role;
  // When gRPC may end the next streams of clients of the address that have had no role, in
  // nanoseconds of the steady clock. Null: each connection for itself.
  std::shared_ptr<std::atomic<int64_t>> next_stream_end;
  // The client begins streams of gRPC. Returns how long to read no more of it, for the sake of other
  // tenants. Null: no limit.
  std::function<absl::Duration(size_t streams, Instant now)> count_streams;
  // Carries the connection's bytes; null: the connection is plain.
  std::shared_ptr<TlsSession> tls;
  // The client's rights; null: the server has no access policy.
  std::shared_ptr<PeerAccess> access;
  // A call has arrived on the connection. The server of framed RPC sets it; at its limits, the
  // listener closes connections without a call first.
  std::shared_ptr<std::atomic<bool>> has_request = std::make_shared<std::atomic<bool>>(false);
  // The listener closes the connection, because the client's certificate has ended or for its age.
  // The end says nothing about the client.
  std::shared_ptr<std::atomic<bool>> closing = std::make_shared<std::atomic<bool>>(false);

  // The object that the incomplete requests of the connection are charged to now.
  const std::shared_ptr<IncompleteRequestBytes>& charged() const {
    return IsStranger() && incoming_without_role != nullptr ? incoming_without_role : incoming;
  }
  // Whether no look at the client's rights has found a role yet.
  bool IsStranger() const { return access != nullptr && !access->has_had_role(); }
  // Whether the client has a role in some tenant. Looks at its rights only until it has had one.
  bool HasRole() const {
    return access == nullptr || access->has_had_role() ||
           access->Current(Clock::Steady().Now())->HighestRole() > Role::kNone;
  }
  // Whose time a request of the connection takes: the client's tenant or, if it has none of its own,
  // its address.
  std::string Payer() const {
    if (access != nullptr) {
      const auto rights = access->Current(Clock::Steady().Now());
      if (!rights->OwnTenant().empty()) return std::string(rights->OwnTenant());
    }
    return counted_address;
  }
  // Sets has_request. Later calls write nothing.
  void NoteRequest() const {
    if (has_request->load(std::memory_order_relaxed)) return;
    has_request->store(true, std::memory_order_relaxed);
  }
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PEER_LISTENER_PEER_H_
