// One file, though long: each decision about a connection uses the tables of connections and peers.
#include "base/port/listener.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/access/peer_access.h"
#include "base/access/peer_names.h"
#include "base/clock.h"
#include "base/port/grpc_relay.h"
#include "base/port/peer/peer_address.h"
#include "base/port/pending_connection.h"
#include "base/port/socket/descriptor_limit.h"
#include "base/port/socket/local_port.h"
#include "base/text/logging.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"

namespace cohort {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);
// A line of the log about one peer, at most.
constexpr absl::Duration kBetweenLines = absl::Minutes(1);
// Two lines of the log about any peers.
constexpr absl::Duration kBetweenAnyLines = absl::Milliseconds(100);
constexpr absl::Duration kSuspicion = absl::Minutes(1);
// Sweeps take one part in so many of the thread's time at most.
constexpr int kSweepShare = 10;
constexpr int kFewestConnections = 8;
constexpr int kAcceptsPerIteration = 1024;
// The most connections of an address that have been accepted and not had their turn.
constexpr int kMostNew = 1024;
constexpr size_t kMostIdlePeers = 1024;
// The most bytes of incomplete requests of those clients of an address that have had no role. A
// client whose token comes with its first call has to make that call with fewer bytes.
constexpr int64_t kMostWithoutRole = int64_t{24} << 20;
// The most bytes of unfinished TLS handshakes of an address; others wait.
constexpr int64_t kMostOfHandshakes = int64_t{48} << 20;
constexpr char kTlsHandshakes[] = "TLS handshakes";
constexpr int kClosedAtRest = 16;
// More connections than this need --max-connections: each costs gRPC tens of KiB.
constexpr int kMostConnections = 65536;

int MostDescriptors() {
  return DescriptorsForConnections(kFewestConnections * kRelayDescriptors,
                                   kMostConnections * kRelayDescriptors);
}

int MostPerPeer(int asked, int most) {
  return asked > 0 ? std::min(asked, most) : std::max(most * 3 / 4, 1);
}

}  // namespace

ProtocolMatch MatchPreface(absl::string_view first, absl::string_view preface) {
  const size_t size = std::min(first.size(), preface.size());
  if (first.substr(0, size) != preface.substr(0, size)) return ProtocolMatch::kOther;
  return size < preface.size() ? ProtocolMatch::kUndecided : ProtocolMatch::kMatch;
}

struct Listener::Link {
  Mutex mutex;
  Listener* listener ABSL_GUARDED_BY(mutex) = nullptr;
};

class Listener::NewConnection final : public FairTurns::Work {
 public:
  NewConnection(Listener& listener, UniqueFd fd, std::shared_ptr<Peer> peer)
      : listener_(listener), fd_(std::move(fd)), peer_(std::move(peer)) {}

  void OnTurn() override {
    --peer_->new_connections;
    if (listener_.MakeRoom(*peer_)) listener_.Accepted(fd_.release(), peer_);
  }

 private:
  Listener& listener_;
  UniqueFd fd_;
  const std::shared_ptr<Peer> peer_;
};

class Listener::Acceptor final : public EventLoop::Handler {
 public:
  Acceptor(Listener& listener, int fd) : listener_(listener), fd_(fd) {}

  void OnEvents(uint32_t) override {
    // The kernel's queue is in the order in which clients came. So it is emptied, at little cost
    // for each connection, and addresses take turns from there on.
    for (int i = 0; i < kAcceptsPerIteration; ++i) {
      const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        const int error = errno;
        if (error == ECONNABORTED || error == EINTR) continue;
        if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) Rest();
        return;
      }
      UniqueFd connection(fd);
      const std::shared_ptr<Peer> peer = listener_.FindPeer(CountedAddress(PeerAddressOf(fd)));
      if (peer->new_connections >= kMostNew || (!IsLocal(fd) && !listener_.Admit(*peer))) continue;
      ++peer->new_connections;
      listener_.turns_.Add(peer->turns,
                           std::make_shared<NewConnection>(listener_, std::move(connection), peer));
    }
  }

 private:
  // New connections wait meanwhile in the kernel's queue.
  void Rest() {
    if (!ConnectionWaits(fd_)) return;
    // One at a time would keep a new client waiting behind all idle ones in the queue.
    for (int i = 0; i < kClosedAtRest && listener_.CloseOldest(listener_.candidates_); ++i) {
    }
    const Instant now = Clock::Steady().Now();
    if (now - listener_.last_rest_log_ > kBetweenLines) {
      listener_.last_rest_log_ = now;
      Log(LogLevel::kWarning, "too many open files: accepting no connections for a moment",
          {{"connections", static_cast<int64_t>(listener_.connections_.size())}});
    }
    listener_.loop_.Modify(fd_, 0);
    listener_.resting_.push_back(fd_);
    listener_.loop_.SetTicking(true);
  }

  Listener& listener_;
  const int fd_;
};

Listener::Listener(std::vector<ListenSocket> sockets, ListenerSinks sinks, ListenerOptions options)
    : sinks_(std::move(sinks)),
      options_(std::move(options)),
      sockets_(std::move(sockets)),
      max_connections_(options_.max_connections > 0
                           ? options_.max_connections
                           : std::min(MostDescriptors(), kMostConnections)),
      max_connections_per_peer_(MostPerPeer(options_.max_connections_per_peer, max_connections_)),
      max_descriptors_(MostDescriptors()),
      incoming_(std::make_shared<IncompleteRequestBytes>(
          "max_incoming_bytes", MaxIncomingBytes(options_.max_incoming_bytes))),
      handshakes_(std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", incoming_->limit(),
                                                           nullptr, kTlsHandshakes)),
      link_(std::make_shared<Link>()),
      expiry_(options_.tls, options_.max_connection_age, options_.ends_with_certificates),
      loop_("listener", kTick, [this] { OnTick(); }) {
  incoming_->on_change = options_.on_incoming_bytes;
  handshakes_->on_change = options_.on_incoming_bytes;
  {
    MutexLock lock(&link_->mutex);
    link_->listener = this;
  }
  status_ = closer_.status();
  if (status_.ok()) status_ = loop_.Start();
  for (const ListenSocket& socket : sockets_) {
    if (!status_.ok()) return;
    if (!loop_.Add(socket.fd(), EPOLLIN, std::make_shared<Acceptor>(*this, socket.fd()))) {
      status_ = absl::ResourceExhaustedError("the system does not watch a listening socket");
    }
  }
}

Listener::~Listener() {
  MutexLock lock(&link_->mutex);
  link_->listener = nullptr;
}

std::shared_ptr<Listener::Peer> Listener::FindPeer(const std::string& name) {
  // Short connections from many addresses leave their records behind.
  if (peers_.size() > kMostIdlePeers + 2 * connections_.size()) Sweep();
  std::shared_ptr<Peer>& peer = peers_[name];
  if (peer == nullptr) {
    peer = std::make_shared<Peer>(options_.failed_handshakes);
    peer->name = name;
    // One address leaves others a quarter, and so does one tenant.
    peer->incoming = std::make_shared<IncompleteRequestBytes>(
        "max_incoming_bytes_per_peer", incoming_->limit() / 4 * 3, incoming_);
    peer->incoming_without_role = std::make_shared<IncompleteRequestBytes>(
        "max_incoming_bytes_without_role", std::min(kMostWithoutRole, peer->incoming->limit()),
        peer->incoming);
    peer->handshakes = std::make_shared<IncompleteRequestBytes>(
        "max_incoming_bytes_per_peer", std::min(kMostOfHandshakes, incoming_->limit() / 4 * 3),
        handshakes_, kTlsHandshakes);
  }
  return peer;
}

std::shared_ptr<IncompleteRequestBytes> Listener::IncomingOfTenant(absl::string_view tenant) {
  std::shared_ptr<IncompleteRequestBytes>& incoming = tenants_[tenant];
  if (incoming == nullptr) {
    incoming = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes_per_tenant",
                                                        incoming_->limit() / 4 * 3, incoming_);
  }
  return incoming;
}

void Listener::Accepted(int fd, std::shared_ptr<Peer> peer) {
  auto connection = std::make_shared<Connection>();
  connection->fd = fd;
  connection->cookie = SocketCookie(fd);
  connection->host = PeerAddressOf(fd);
  connection->address = PeerAddressAndPortOf(fd);
  connection->peer = std::move(peer);
  auto pending = std::make_shared<PendingConnection>(*this, fd, connection);
  connection->pending = pending;
  pending_.insert(pending);
  ++connection->peer->connections;
  descriptors_ += connection->descriptors;
  connection->peer->descriptors += connection->descriptors;
  connection->peer->candidates.push_back(connection);
  candidates_.push_back(connection);
  connections_.emplace(connection->cookie, connection);
  loop_.SetTicking(true);
  // Edge-triggered: half a preface must not wake us again and again.
  const uint32_t output = options_.tls == nullptr ? 0u : static_cast<uint32_t>(EPOLLOUT);
  if (!loop_.Add(fd, EPOLLIN | EPOLLRDHUP | EPOLLET | output, pending)) pending->Leave();
}

bool Listener::Admit(Peer& peer) {
  if (!peer.handshake_debt.TooHigh(Clock::Steady().Now())) return true;
  LogOnce(peer, "refused a connection",
          absl::ResourceExhaustedError(
              "too many TLS handshakes of this address have failed or led to no call"));
  return false;
}

bool Listener::Move(const std::shared_ptr<Connection>& connection, std::shared_ptr<Peer> peer) {
  if (!Admit(*peer) || !MakeRoomOfPeer(*peer)) return false;
  --connection->peer->connections;
  connection->peer->descriptors -= connection->descriptors;
  connection->peer = std::move(peer);
  ++connection->peer->connections;
  connection->peer->descriptors += connection->descriptors;
  connection->peer->candidates.push_back(connection);
  return true;
}

bool Listener::MakeRoom(Peer& peer) {
  const auto full = [&] {
    return static_cast<int>(connections_.size()) >= max_connections_ ||
           descriptors_ + kRelayDescriptors > max_descriptors_;
  };
  if (connections_.size() >= sweep_at_ || full()) Sweep();
  if (!MakeRoomOfPeer(peer)) return false;
  // A connection that is shut down no longer counts, also before its owner closes it.
  if (!full() || CloseOldest(candidates_)) return true;
  LogOnce(peer, "refused a connection",
          absl::ResourceExhaustedError(absl::StrCat("max_connections (", max_connections_, ")")));
  return false;
}

bool Listener::MakeRoomOfPeer(Peer& peer) {
  const auto full = [&] {
    return peer.connections >= max_connections_per_peer_ ||
           peer.descriptors + kRelayDescriptors > max_descriptors_ / 4 * 3;
  };
  if (full()) Sweep();
  if (!full() || CloseOldest(peer.candidates, &peer)) return true;
  LogOnce(peer, "refused a connection",
          absl::ResourceExhaustedError(
              absl::StrCat("max_connections_per_peer (", max_connections_per_peer_, ")")));
  return false;
}

bool Listener::CloseOldest(std::deque<std::weak_ptr<Connection>>& candidates, const Peer* peer) {
  while (!candidates.empty()) {
    const std::shared_ptr<Connection> oldest = candidates.front().lock();
    candidates.pop_front();
    if (oldest == nullptr || connections_.count(oldest->cookie) == 0) continue;
    if (peer != nullptr && oldest->peer.get() != peer) continue;  // it has moved
    if (!oldest->alive()) {
      Remove(*oldest);
      return true;
    }
    if (oldest->has_request()) continue;
    if (const std::shared_ptr<PendingConnection> pending = oldest->pending.lock();
        pending != nullptr) {
      pending->Leave();
    } else {
      closer_.Close(oldest->fd, oldest->cookie);
      Remove(*oldest);
    }
    return true;
  }
  return false;
}

void Listener::Sweep() {
  const Instant start = Clock::Steady().Now();
  if (start < next_sweep_) return;
  std::vector<std::shared_ptr<Connection>> gone;
  for (const auto& [cookie, connection] : connections_) {
    if (!connection->alive()) gone.push_back(connection);
  }
  for (const std::shared_ptr<Connection>& connection : gone) Remove(*connection);
  const auto drop_gone = [this](std::deque<std::weak_ptr<Connection>>& candidates) {
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(),
                                    [this](const std::weak_ptr<Connection>& weak) {
                                      const std::shared_ptr<Connection> one = weak.lock();
                                      return one == nullptr || connections_.count(one->cookie) == 0;
                                    }),
                     candidates.end());
  };
  drop_gone(candidates_);
  absl::erase_if(tenants_, [](const auto& tenant) { return tenant.second.use_count() == 1; });
  for (auto it = peers_.begin(); it != peers_.end();) {
    Peer& peer = *it->second;
    drop_gone(peer.candidates);
    // A peer without connections is kept until its penalties and its log pause are over.
    const bool forget =
        peer.connections == 0 && it->second.use_count() == 1 &&
        start > std::max({peer.suspect_until, peer.next_line, peer.handshake_debt.paid_at()});
    if (forget) {
      peers_.erase(it++);
    } else {
      ++it;
    }
  }
  sweep_at_ = std::max<size_t>(64, connections_.size() * 2);
  const Instant end = Clock::Steady().Now();
  next_sweep_ = end + (end - start) * kSweepShare;
}

void Listener::Remove(const Connection& connection) {
  Peer& peer = *connection.peer;
  if (connections_.erase(connection.cookie) == 0) return;
  --peer.connections;
  peer.descriptors -= connection.descriptors;
  descriptors_ -= connection.descriptors;
}

void Listener::CountDescriptors(Connection& connection, int descriptors) {
  const int more = descriptors - std::exchange(connection.descriptors, descriptors);
  connection.peer->descriptors += more;
  descriptors_ += more;
}

void Listener::PassToServer(Connection& connection, int fd, const ListenerProtocol* protocol,
                            std::shared_ptr<TlsSession> tls) {
  ListenerPeer peer;
  peer.suspect = connection.peer->suspect;
  peer.on_offence = [link = link_, offender = connection.peer](const absl::Status& status) {
    offender->suspect->store(true, std::memory_order_relaxed);
    MutexLock lock(&link->mutex);
    Listener* const listener = link->listener;
    if (listener == nullptr) return;
    listener->loop_.Post([listener, offender, status] { listener->OnOffence(offender, status); });
  };
  peer.address = std::move(connection.address);
  peer.counted_address = connection.peer->name;
  peer.incoming = connection.peer->incoming;
  peer.incoming_without_role = connection.peer->incoming_without_role;
  peer.next_stream_end = connection.peer->next_stream_end;
  connection.closing = peer.closing;
  if (options_.access != nullptr) {
    peer.access = std::make_shared<PeerAccess>(
        options_.access, NamesOfPeer(fd, tls == nullptr ? nullptr : &tls->peer()), connection.host,
        tls == nullptr ? absl::InfiniteFuture() : tls->peer().not_after);
    const auto rights = peer.access->Current(Clock::Steady().Now());
    if (!rights->OwnTenant().empty()) peer.incoming = IncomingOfTenant(rights->OwnTenant());
  }
  if (tls != nullptr) expiry_.Add(connection.cookie, tls, Clock::Steady().Now());
  peer.tls = std::move(tls);
  if (protocol == nullptr || protocol->notes_requests) connection.has_call = peer.has_request;
  if (protocol == nullptr && options_.max_streams_per_second > 0) {
    peer.count_streams = [rates = options_.rates, payer = peer.Payer(),
                          most = options_.max_streams_per_second](size_t streams, Instant now) {
      return rates->OnRequest(payer, static_cast<int64_t>(streams), most, now);
    };
  }
  if (protocol != nullptr) {
    CountDescriptors(connection, 1);
    return protocol->sink(fd, std::move(peer));
  }
  const int port = LocalPortOf(fd);
  auto relayed = RelayToGrpc(UniqueFd(fd), options_.http2, std::move(peer));
  if (!relayed.ok()) return LogOnce(*connection.peer, "refused a connection", relayed.status());
  sinks_.grpc(relayed->release(), port);
}

void Listener::OnOffence(const std::shared_ptr<Peer>& peer, const absl::Status& status) {
  const Instant now = Clock::Steady().Now();
  peer->suspect_until = now + kSuspicion;
  peer->suspect->store(true, std::memory_order_relaxed);
  LogOnce(*peer, "closed a connection", status);
  loop_.SetTicking(true);
}

void Listener::LogOnce(Peer& peer, const char* what, const absl::Status& status) {
  ++peer.unlogged;
  const Instant now = Clock::Steady().Now();
  // Strangers may have any number of addresses.
  if (now < peer.next_line || now < next_line_) return;
  peer.next_line = now + kBetweenLines;
  next_line_ = now + kBetweenAnyLines;
  Log(LogLevel::kWarning, what,
      {{"peer", peer.name},
       {"why", std::string(status.message())},
       {"connections_of_peer", peer.connections},
       {"times", std::exchange(peer.unlogged, 0)}});
}

void Listener::ForgiveHandshakes() {
  const auto done = [this](const std::shared_ptr<Connection>& connection) {
    const auto& has_call = connection->has_call;
    if (has_call != nullptr && has_call->load(std::memory_order_relaxed)) {
      connection->peer->handshake_debt.Forgive(connection->handshake_time);
      return true;
    }
    return connections_.count(connection->cookie) == 0;
  };
  without_call_.erase(std::remove_if(without_call_.begin(), without_call_.end(), done),
                      without_call_.end());
}

void Listener::CloseExpired() {
  if (expiry_.empty()) return;
  bool more = false;
  for (const auto& [cookie, why] : expiry_.Expired(Clock::Steady().Now(), absl::Now(), &more)) {
    const auto found = connections_.find(cookie);
    if (found == connections_.end()) continue;
    const std::shared_ptr<Connection> connection = found->second;
    connection->closing->store(true);
    closer_.Close(connection->fd, cookie);
    LogOnce(*connection->peer, "closed a connection", why);
    Remove(*connection);
  }
  if (more) loop_.Post([this] { CloseExpired(); });
}

void Listener::OnTick() {
  for (const int fd : std::exchange(resting_, {})) loop_.Modify(fd, EPOLLIN);
  const Instant now = Clock::Steady().Now();
  std::vector<std::shared_ptr<PendingConnection>> silent;
  for (const std::shared_ptr<PendingConnection>& pending : pending_) {
    if (pending->silent(now)) silent.push_back(pending);
  }
  for (const std::shared_ptr<PendingConnection>& pending : silent) pending->Leave();
  bool suspects = false;
  for (const auto& [name, peer] : peers_) {
    if (!peer->suspect->load(std::memory_order_relaxed)) continue;
    if (now > peer->suspect_until) {
      peer->suspect->store(false, std::memory_order_relaxed);
    } else {
      suspects = true;
    }
  }
  CloseExpired();
  ForgiveHandshakes();
  loop_.SetTicking(!pending_.empty() || !resting_.empty() || suspects || !expiry_.empty() ||
                   !without_call_.empty());
}

}  // namespace cohort
