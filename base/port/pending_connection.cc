#include "base/port/pending_connection.h"

#include <errno.h>
#include <linux/tcp.h>  // the C library's has no tcpi_bytes_received
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/port/client_hello.h"
#include "base/port/limits/http2_guard.h"
#include "base/port/peer/ip_network.h"
#include "base/port/peer/peer_address.h"
#include "base/port/peer/proxy_header.h"
#include "base/port/socket/listen_address.h"
#include "base/port/socket/local_port.h"
#include "base/text/logging.h"
#include "base/threads/thread_time.h"
#include "base/tls/stream_socket.h"
#include "base/tls/tls_context.h"

namespace cohort {
namespace {

// Between two lines of the log about certificates.
constexpr absl::Duration kBetweenTlsLines = absl::Minutes(1);
// The memory of an unfinished handshake, roughly: OpenSSL's objects, a record in each direction,
// and the client's certificates, as they came (32 KiB at most) and as OpenSSL keeps them.
constexpr int64_t kHandshakeBytes = int64_t{96} << 10;

// Empty settings, and GOAWAY with PROTOCOL_ERROR.
constexpr absl::string_view kNotHttp2(
    "\0\0\0\4\0\0\0\0\0"
    "\0\0\10\7\0\0\0\0\0\0\0\0\0\0\0\0\1",
    26);

// As many bytes tell any protocol.
constexpr uint64_t kProtocolBytes = 8;

// Whether the client has sent more than bytes that tell its protocol.
bool HasSpoken(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return true;  // a Unix socket
  return info.tcpi_bytes_received > kProtocolBytes;
}

bool IsProxy(const std::vector<IpNetwork>& proxies, int fd) {
  if (proxies.empty()) return false;
  const std::string address = PeerAddressOf(fd);
  return std::any_of(proxies.begin(), proxies.end(),
                     [&address](const IpNetwork& network) { return network.Contains(address); });
}

}  // namespace

bool Listener::Connection::has_request() const {
  if (has_call != nullptr) return has_call->load(std::memory_order_relaxed);
  return pending.expired() && HasSpoken(fd);
}

Listener::PendingConnection::PendingConnection(Listener& listener, int fd,
                                               std::shared_ptr<Connection> connection)
    : listener_(listener),
      fd_(fd),
      connection_(std::move(connection)),
      plain_(listener_.options_.plain || (listener_.options_.plain_local && IsLocal(fd))),
      proxied_(IsProxy(listener_.options_.proxies, fd)),
      handshake_memory_(connection_->peer->handshakes) {}

Listener::PendingConnection::~PendingConnection() {
  if (fd_ >= 0) close(fd_);
}

void Listener::PendingConnection::OnEvents(uint32_t events) {
  peer_has_ended_ = peer_has_ended_ || (events & (EPOLLRDHUP | EPOLLHUP)) != 0;
  if (fd_ < 0 || !PassProxyHeader()) return;
  if (!handshake_done_) return AwaitTurn();
  Continue();
}

void Listener::PendingConnection::Continue() {
  char first[kHttp2Preface.size()];
  const ssize_t count = StreamSocket{fd_, tls_}.Peek(first, sizeof(first));
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  const absl::string_view seen(first, count > 0 ? static_cast<size_t>(count) : 0);
  if (seen.empty()) return Leave();
  if (tls_ == nullptr) {
    if (seen.front() == kTlsHandshake && listener_.options_.tls != nullptr) return StartTls(seen);
    if (!plain_) return Refuse(absl::UnauthenticatedError("the connection is not by TLS"));
  }
  const ListenerProtocol* protocol = nullptr;
  switch (Recognize(seen, &protocol)) {
    case ProtocolMatch::kOther:
      return Reject();
    case ProtocolMatch::kUndecided:  // called again when there is more
      if (tls_ == nullptr && peer_has_ended_) Leave();
      return;
    case ProtocolMatch::kMatchWithSilent:
      connection_->peer->may_be_silent = true;
      break;
    case ProtocolMatch::kMatch:
      break;
  }
  const int fd = std::exchange(fd_, -1);
  listener_.loop_.Remove(fd);
  const auto self = shared_from_this();
  listener_.pending_.erase(self);
  connection_->pending.reset();
  listener_.PassToServer(*connection_, fd, protocol, std::move(tls_));
}

bool Listener::PendingConnection::PassProxyHeader() {
  if (!proxied_) return true;
  char first[kMaxProxyHeaderBytes];
  const ssize_t count = recv(fd_, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const absl::string_view seen(first, count > 0 ? static_cast<size_t>(count) : 0);
  const absl::StatusOr<ProxyHeader> header = ParseProxyHeader(seen);
  if (!header.ok()) {
    Refuse(header.status());
    return false;
  }
  if (header->bytes == 0) {  // called again when there is more
    if (peer_has_ended_ || count <= 0) Leave();
    return false;
  }
  if (recv(fd_, first, header->bytes, MSG_DONTWAIT) != static_cast<ssize_t>(header->bytes)) {
    Leave();
    return false;
  }
  proxied_ = false;
  if (header->address.empty()) return true;
  connection_->host = header->address;
  connection_->address = HostAndPort(header->address, header->port);
  // The balancer may be of this machine, and its clients are not.
  plain_ = listener_.options_.plain;
  if (!listener_.Move(connection_, listener_.FindPeer(CountedAddress(header->address)))) {
    if (fd_ >= 0) Leave();
    return false;
  }
  handshake_memory_ = IncomingCharge(connection_->peer->handshakes);
  return true;
}

void Listener::PendingConnection::StartTls(absl::string_view seen) {
  if (seen.size() < kClientHelloHeaderBytes) {  // called again when there is more
    if (peer_has_ended_) Leave();
    return;
  }
  if (const absl::Status hello = CheckClientHello(seen); !hello.ok()) return Refuse(hello);
  handshake_memory_.Set(kHandshakeBytes);
  if (const auto& own = peer()->handshakes; own->held() > own->limit()) {
    handshake_memory_.Set(0);
    if (!std::exchange(awaits_memory_, true)) peer()->waiting.push_back(weak_from_this());
    return;
  }
  if (const absl::Status room = connection_->peer->handshakes->Check();
      !room.ok() && !CloseOneOfTheMost()) {
    return Refuse(room);
  }
  const std::shared_ptr<TlsContext>& tls = listener_.options_.tls;
  const Instant now = Clock::Steady().Now();
  tls_ = TlsSession::Accept(tls->Current(now), fd_);
  handshake_done_ = false;
  if (const absl::Status error = tls->last_error(); !error.ok() && now > listener_.next_tls_log_) {
    listener_.next_tls_log_ = now + kBetweenTlsLines;
    Log(LogLevel::kError, "new certificates cannot be used: the old ones stay",
        {{"why", error.message()}});
  }
  AwaitTurn();
}

bool Listener::PendingConnection::CloseOneOfTheMost() {
  const auto before = [](const PendingConnection* one, const PendingConnection* other) {
    const int64_t bytes = one->peer()->handshakes->held();
    const int64_t other_bytes = other->peer()->handshakes->held();
    return bytes != other_bytes ? bytes > other_bytes : one->since_ < other->since_;
  };
  PendingConnection* first = this;
  for (const std::shared_ptr<PendingConnection>& pending : listener_.pending_) {
    if (pending->handshake_memory_.bytes() > 0 && before(pending.get(), first))
      first = pending.get();
  }
  if (first->peer() == peer()) return false;
  listener_.LogOnce(*first->peer(), "closed a connection", peer()->handshakes->Check());
  first->Leave();
  return peer()->handshakes->Check().ok();
}

void Listener::PendingConnection::EndHandshake() {
  if (handshake_memory_.bytes() == 0) return;
  handshake_memory_.Set(0);
  std::deque<std::weak_ptr<PendingConnection>>& waiting = peer()->waiting;
  while (!waiting.empty()) {
    const std::shared_ptr<PendingConnection> next = waiting.front().lock();
    waiting.pop_front();
    if (next == nullptr || next->fd_ < 0) continue;
    next->awaits_memory_ = false;
    listener_.loop_.Post([next] { next->OnEvents(0); });
    return;
  }
}

void Listener::PendingConnection::AwaitTurn() {
  if (!std::exchange(awaits_turn_, true)) listener_.turns_.Add(peer()->turns, shared_from_this());
}

void Listener::PendingConnection::OnTurn() {
  awaits_turn_ = false;
  if (fd_ < 0) return;  // it has left
  // Others of the address may have failed since this one began to wait.
  const bool begins = handshake_time_ == absl::ZeroDuration();
  if (begins && !listener_.Admit(*connection_->peer)) return Leave();
  if (PassHandshake()) Continue();
}

bool Listener::PendingConnection::PassHandshake() {
  const absl::Duration before = ThreadTime();
  const TlsSession::Progress progress = tls_->Handshake();
  handshake_time_ += ThreadTime() - before;
  switch (progress) {
    case TlsSession::Progress::kDone:
      handshake_done_ = true;
      EndHandshake();
      connection_->handshake_time = handshake_time_;
      connection_->peer->handshake_debt.Add(handshake_time_, Clock::Steady().Now());
      listener_.without_call_.push_back(connection_);
      return true;
    case TlsSession::Progress::kFailed:
      Refuse(tls_->error());
      return false;
    case TlsSession::Progress::kWantInput:
      // No edge follows the last one, and a session leaves bytes, or the end, in the socket.
      return peer_has_ended_ && PassHandshake();
    case TlsSession::Progress::kWantOutput:
      return false;  // edges of both kinds call again
  }
  return false;
}

ProtocolMatch Listener::PendingConnection::Recognize(absl::string_view seen,
                                                     const ListenerProtocol** protocol) const {
  ProtocolMatch match = MatchPreface(seen, kHttp2Preface);
  if (match == ProtocolMatch::kMatch) return match;
  bool undecided = match == ProtocolMatch::kUndecided;
  for (const ListenerProtocol& candidate : listener_.sinks_.protocols) {
    if (!candidate.ports.empty() && !candidate.ports.contains(LocalPortOf(fd_))) continue;
    match = candidate.match(seen);
    undecided = undecided || match == ProtocolMatch::kUndecided;
    if (match == ProtocolMatch::kOther || match == ProtocolMatch::kUndecided) continue;
    *protocol = &candidate;
    return match;
  }
  return undecided ? ProtocolMatch::kUndecided : ProtocolMatch::kOther;
}

bool Listener::PendingConnection::silent(Instant now) const {
  // No client that may be silent uses TLS: a handshake always has its time.
  const bool may_be_silent = tls_ == nullptr && connection_->peer->may_be_silent;
  return !may_be_silent && now - since_ > listener_.options_.preface_timeout;
}

void Listener::PendingConnection::Leave() {
  const auto self = shared_from_this();
  listener_.loop_.Remove(fd_);
  listener_.pending_.erase(self);
  listener_.Remove(*connection_);
  if (!handshake_done_) {
    connection_->peer->handshake_debt.Add(handshake_time_, Clock::Steady().Now());
  }
  EndHandshake();  // the loop may keep this object for a while
  close(std::exchange(fd_, -1));
}

void Listener::PendingConnection::Refuse(const absl::Status& why) {
  listener_.LogOnce(*connection_->peer, "refused a connection", why);
  Leave();
}

void Listener::PendingConnection::Reject() {
  // Unread bytes would make the kernel drop the answer.
  const StreamSocket socket{fd_, tls_};
  char ignored[4096];
  (void)socket.Receive(ignored, sizeof(ignored));
  (void)socket.Send(kNotHttp2);
  Leave();
}

}  // namespace cohort
