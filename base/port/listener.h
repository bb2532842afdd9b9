// Accepts connections and gives each to gRPC or to the server of another protocol, by its first
// bytes. Bounds their number and the HTTP/2 frames that each may send
// (http2_guard.h).
#ifndef COHORT_BASE_PORT_LISTENER_H_
#define COHORT_BASE_PORT_LISTENER_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/port/connection_expiry.h"
#include "base/port/limits/handshake_debt.h"
#include "base/port/limits/http2_guard.h"
#include "base/port/limits/incomplete_request_bytes.h"
#include "base/port/limits/tenant_rates.h"
#include "base/port/peer/ip_network.h"
#include "base/port/peer/listener_peer.h"
#include "base/port/socket/connection_closer.h"
#include "base/port/socket/listen_socket.h"
#include "base/threads/event_loop.h"
#include "base/threads/fair_turns.h"
#include "base/threads/mutex.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"

namespace cohort {

// The protocol of a connection, judged by its first bytes.
enum class ProtocolMatch {
  kOther,      // another protocol
  kUndecided,  // the next bytes will tell
  kMatch,
  // kMatch, and the client opens further connections on which it may never send anything.
  kMatchWithSilent,
};

// A protocol beside gRPC.
struct ListenerProtocol {
  // `first` has at least one byte. It must decide before 24 bytes.
  std::function<ProtocolMatch(absl::string_view first)> match;
  // Takes ownership of the descriptor, which does not block. No byte was read from it.
  std::function<void(int fd, ListenerPeer peer)> sink;
  // The server sets ListenerPeer::has_request. False: each connection with more than its first
  // bytes counts as one with a request.
  bool notes_requests = false;
  // The ports that serve it; 0 stands for Unix sockets. Connections to others do not match.
  absl::flat_hash_set<int> ports;
};

// Matches clients whose first bytes are `preface`, of 24 bytes at most.
ProtocolMatch MatchPreface(absl::string_view first, absl::string_view preface);

struct ListenerSinks {
  // Takes ownership of the descriptor, which is an end of a relay (grpc_relay.h). `port`: where the
  // client has connected; 0: at a Unix socket.
  std::function<void(int fd, int port)> grpc;
  // Asked in this order, after gRPC.
  std::vector<ListenerProtocol> protocols;
};

struct ListenerOptions {
  // The most open connections. 0: as many as there are descriptors for, of which one of gRPC takes
  // three: the limit, minus those that are open when the listener starts and a reserve for files
  // and metrics.
  int max_connections = 0;
  // The most connections of one peer: one address, or one user of a Unix socket. 0: three quarters
  // of max_connections.
  int max_connections_per_peer = 0;
  // A connection without a TLS handshake or without its first bytes by then is closed. An exception
  // is a peer that has sent bytes of kMatchWithSilent on another connection.
  absl::Duration preface_timeout = absl::Seconds(5);
  Http2Limits http2;
  // The most bytes of incomplete requests, over all connections, and also the most of unfinished
  // TLS handshakes. Those of one tenant may have three quarters of it, or of one address if their
  // clients are of no tenant. 0: an eighth of the memory that the process may use.
  int64_t max_incoming_bytes = 0;
  // The streams of gRPC that one tenant, or an address without one, may begin in a second while
  // others begin some. It is read more slowly above that, because gRPC takes up all streams that
  // have come in the order in which they came. 0: no limit.
  int64_t max_streams_per_second = 0;
  // The time that tenants and addresses have used, which the server may count, too.
  std::shared_ptr<TenantRates> rates = std::make_shared<TenantRates>();
  // Called with every change of either sum, on the thread that reads.
  std::function<void(int64_t more)> on_incoming_bytes;
  // Connections may begin with a TLS handshake; null: none may.
  std::shared_ptr<TlsContext> tls;
  // Each address has these limits of its own.
  FailedHandshakeLimits failed_handshakes;
  // Whether a connection by TLS is closed when the client's certificate ends. The clients have to
  // connect again without harm: a worker's sessions and a queue's readers would not.
  bool ends_with_certificates = false;
  // The age at which a connection by TLS is closed; a tenth of it earlier for some. 0: it has no
  // limit. Clients of framed RPC and gRPC's stubs connect again.
  absl::Duration max_connection_age;
  // Whether connections may be plain: over networks, and over Unix sockets and loopback addresses.
  bool plain = true;
  bool plain_local = true;
  // The networks of load balancers. A connection from there begins with a header of the PROXY
  // protocol (proxy_header.h), whose address counts in place of that of the balancer.
  std::vector<IpNetwork> proxies;
  // The rights of clients; null: each client has all.
  std::shared_ptr<AccessPolicy> access;
};

// At a limit of connections, the listener closes the oldest connection without a complete request
// to make room for a new one. If all have had a complete request, it refuses the new one. It closes
// a connection that exceeds an HTTP/2 limit, or that makes the incoming bytes exceed theirs. It
// closes connections by TLS whose clients have no rights any more (connection_expiry.h). It refuses
// connections of an address whose TLS handshakes fail too often. It logs at most one line a minute
// for each peer.
class Listener {
 public:
  Listener(std::vector<ListenSocket> sockets, ListenerSinks sinks, ListenerOptions options = {});
  // Accepts no more connections. No sink runs afterwards. The connections of gRPC go on.
  ~Listener();

  // OK: it accepts connections. Errors: RESOURCE_EXHAUSTED (threads, descriptors).
  const absl::Status& status() const { return status_; }
  int max_connections() const { return max_connections_; }

 private:
  class Acceptor;
  class NewConnection;
  class PendingConnection;
  struct Peer;
  struct Connection;
  struct Link;
  using Connections = absl::flat_hash_map<uint64_t, std::shared_ptr<Connection>>;

  void OnTick();
  void Accepted(int fd, std::shared_ptr<Peer> peer);
  std::shared_ptr<Peer> FindPeer(const std::string& name);
  std::shared_ptr<IncompleteRequestBytes> IncomingOfTenant(absl::string_view tenant);
  bool Admit(Peer& peer);
  // Counts the connection for `peer` in place of the one before. False: that has no room.
  bool Move(const std::shared_ptr<Connection>& connection, std::shared_ptr<Peer> peer);
  // Closes a connection if they are too many, of all peers or of this one. False: all stay.
  bool MakeRoom(Peer& peer);
  bool MakeRoomOfPeer(Peer& peer);
  // `peer`: that of the candidates; null: they are of all peers.
  bool CloseOldest(std::deque<std::weak_ptr<Connection>>& candidates, const Peer* peer = nullptr);
  void Sweep();
  void Remove(const Connection& connection);
  void CountDescriptors(Connection& connection, int descriptors);
  // `protocol` null: gRPC.
  void PassToServer(Connection& connection, int fd, const ListenerProtocol* protocol,
                    std::shared_ptr<TlsSession> tls);
  void OnOffence(const std::shared_ptr<Peer>& peer, const absl::Status& status);
  void CloseExpired();
  void ForgiveHandshakes();
  void LogOnce(Peer& peer, const char* what, const absl::Status& status);

  const ListenerSinks sinks_;
  const ListenerOptions options_;
  const std::vector<ListenSocket> sockets_;
  const int max_connections_;
  const int max_connections_per_peer_;
  const int max_descriptors_;  // of all connections
  const std::shared_ptr<IncompleteRequestBytes> incoming_;
  const std::shared_ptr<IncompleteRequestBytes> handshakes_;
  // The threads that read reach this object through the link, as long as it exists.
  const std::shared_ptr<Link> link_;
  // Only the loop's thread uses these.
  absl::flat_hash_set<std::shared_ptr<PendingConnection>> pending_;
  FairTurns turns_{loop_};  // of addresses, for TLS handshakes
  ConnectionCloser closer_;
  ConnectionExpiry expiry_;
  absl::Status status_;
  int descriptors_ = 0;
  std::vector<int> resting_;  // acceptors that wait for descriptors to become free
  // By socket cookie, those included that were closed since the last sweep.
  Connections connections_;
  absl::flat_hash_map<std::string, std::shared_ptr<Peer>> peers_;
  // The incomplete requests of tenants, as long as these have connections or until the next sweep.
  absl::flat_hash_map<std::string, std::shared_ptr<IncompleteRequestBytes>> tenants_;
  // Connections by TLS that have had no call yet.
  std::vector<std::shared_ptr<Connection>> without_call_;
  // Oldest first. Some are closed already or have had a request.
  std::deque<std::weak_ptr<Connection>> candidates_;
  size_t sweep_at_ = 64;
  Instant next_sweep_ = absl::InfinitePast();
  Instant next_line_ = absl::InfinitePast();  // of the log about a peer
  Instant last_rest_log_ = absl::InfinitePast();
  Instant next_tls_log_ = absl::InfinitePast();
  // Last: its thread ends first.
  EventLoop loop_;
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_LISTENER_H_
