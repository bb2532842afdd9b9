// The facts that the listener passes to a server with each connection.
#ifndef COHORT_BASE_PORT_PEER_LISTENER_PEER_H_
#define COHORT_BASE_PORT_PEER_LISTENER_PEER_H_

#include <atomic>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "base/access/peer_access.h"
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
  // The incoming bytes of all connections of the address; null: not counted.
  std::shared_ptr<IncompleteRequestBytes> incoming;
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

  // Sets has_request. Later calls write nothing.
  void NoteRequest() const {
    if (has_request->load(std::memory_order_relaxed)) return;
    has_request->store(true, std::memory_order_relaxed);
  }
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PEER_LISTENER_PEER_H_
