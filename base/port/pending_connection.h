// A connection that has not yet shown its protocol, and the listener's records of connections.
#ifndef COHORT_BASE_PORT_PENDING_CONNECTION_H_
#define COHORT_BASE_PORT_PENDING_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/port/grpc_relay.h"
#include "base/port/limits/handshake_debt.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/port/listener.h"
#include "base/threads/event_loop.h"
#include "base/threads/fair_turns.h"
#include "base/tls/tls_session.h"

namespace cohort {

// One address, over all of its connections.
struct Listener::Peer {
  explicit Peer(const FailedHandshakeLimits& limits) : handshake_debt(limits) {}

  std::string name;
  int connections = 0;
  int new_connections = 0;                           // that have not had their turn
  int descriptors = 0;                               // of its connections
  std::deque<std::weak_ptr<Connection>> candidates;  // as in Listener
  // Connections may stay without a first byte. They are the first that make room for others.
  bool may_be_silent = false;
  std::shared_ptr<std::atomic<bool>> suspect = std::make_shared<std::atomic<bool>>(false);
  Instant suspect_until = absl::InfinitePast();
  Instant next_line = absl::InfinitePast();
  int64_t unlogged = 0;
  std::shared_ptr<IncompleteRequestBytes> incoming;
  std::shared_ptr<IncompleteRequestBytes> incoming_without_role;
  std::shared_ptr<std::atomic<int64_t>> next_stream_end =
      std::make_shared<std::atomic<int64_t>>(0);
  std::shared_ptr<IncompleteRequestBytes> handshakes;  // the memory of unfinished ones
  // Connections whose handshakes wait until others have ended.
  std::deque<std::weak_ptr<PendingConnection>> waiting;
  HandshakeDebt handshake_debt;
  const std::shared_ptr<FairTurns::Client> turns = std::make_shared<FairTurns::Client>();
};

struct Listener::Connection {
  int fd = -1;
  uint64_t cookie = 0;
  int descriptors = kRelayDescriptors;  // it may become one of gRPC
  std::shared_ptr<Peer> peer;
  // The client's, without and with its port.
  std::string host;
  std::string address;
  std::weak_ptr<PendingConnection> pending;  // until its first bytes have arrived
  // ListenerPeer::has_request; null: pending, or of a protocol that does not set it.
  std::shared_ptr<const std::atomic<bool>> has_call;
  absl::Duration handshake_time;               // of the listener's processor
  std::shared_ptr<std::atomic<bool>> closing;  // ListenerPeer::closing; null: pending

  bool alive() const { return SocketCookie(fd) == cookie; }
  bool has_request() const;
};

// Makes the TLS handshake, if the connection begins one, and tells the protocol by the first bytes
// after it. Only the listener's thread uses it.
class Listener::PendingConnection final : public EventLoop::Handler,
                                          public FairTurns::Work,
                                          public std::enable_shared_from_this<PendingConnection> {
 public:
  // Takes `fd`, which does not block.
  PendingConnection(Listener& listener, int fd, std::shared_ptr<Connection> connection);
  ~PendingConnection() override;

  void OnEvents(uint32_t events) override;
  // Whether it has taken too long.
  bool silent(Instant now) const;
  // Closes it.
  void Leave();
  // Makes the next step of the TLS handshake, in the turn of its address.
  void OnTurn() override;
  const std::shared_ptr<Peer>& peer() const { return connection_->peer; }

 private:
  // Whether the header of the PROXY protocol has been read. True if the connection needs no header.
  bool PassProxyHeader();
  // `seen`: the first bytes of the connection that have arrived.
  void StartTls(absl::string_view seen);
  // Frees the memory of the handshake for another of the address.
  void EndHandshake();
  // Makes room for this unfinished handshake: closes the oldest of the address whose unfinished ones
  // have the most memory. False: that is this one's own address.
  bool CloseOneOfTheMost();
  void AwaitTurn();
  // Whether the handshake is done.
  bool PassHandshake();
  // Tells the protocol by the first bytes after the handshake.
  void Continue();
  // Matched: the protocol; null: gRPC.
  ProtocolMatch Recognize(absl::string_view seen, const ListenerProtocol** protocol) const;
  void Refuse(const absl::Status& why);
  // Answers in HTTP/2 that the protocol is unknown. A framed RPC client learns from it that
  // the server has no framed RPC.
  void Reject();

  Listener& listener_;
  int fd_;
  const std::shared_ptr<Connection> connection_;
  bool plain_;    // it may be
  bool proxied_;  // a header of the PROXY protocol has to come
  std::shared_ptr<TlsSession> tls_;
  bool handshake_done_ = true;
  bool awaits_turn_ = false;
  bool awaits_memory_ = false;  // in Peer::waiting
  absl::Duration handshake_time_;    // of this thread's processor
  IncomingCharge handshake_memory_;  // until the handshake is done
  bool peer_has_ended_ = false;      // it sends nothing more
  const Instant since_ = Clock::Steady().Now();
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PENDING_CONNECTION_H_
