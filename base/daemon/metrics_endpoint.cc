#include "base/daemon/metrics_endpoint.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/access/peer_names.h"
#include "base/access/role.h"
#include "base/clock.h"
#include "base/port/peer/peer_address.h"
#include "base/port/socket/listen_address.h"
#include "base/status_macros.h"
#include "base/tls/stream_socket.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"
#include "prometheus/text_serializer.h"

namespace cohort {
namespace {

constexpr rlim_t kFewestConnections = 8;
constexpr rlim_t kMostConnections = 256;
constexpr int kAcceptsAtATime = 4;
constexpr size_t kMostRequestBytes = size_t{8} << 10;
constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr absl::string_view kHeadersEnd = "\r\n\r\n";

// A quarter of the descriptors that this process may have.
size_t MostConnections() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return kFewestConnections;
  return std::min(std::max(limit.rlim_cur / 4, kFewestConnections), kMostConnections);
}

std::string Response(absl::string_view status, absl::string_view type, absl::string_view body,
                     bool with_body = true) {
  return absl::StrCat("HTTP/1.1 ", status, "\r\nContent-Type: ", type,
                      "\r\nContent-Length: ", body.size(), "\r\nConnection: close", kHeadersEnd,
                      with_body ? body : "");
}

// Whether a client with these rights may see it: the figures of a tenant are for its observers.
bool IsFor(const Rights& rights, const prometheus::ClientMetric& metric) {
  return std::none_of(metric.label.begin(), metric.label.end(), [&](const auto& label) {
    return label.name == "tenant" && rights.RoleIn(label.value) < Role::kObserver;
  });
}

// Clients with the same one see the same metrics.
std::string GrantsOf(const Rights* rights) {
  if (rights == nullptr) return "";
  std::string grants;
  for (const Rights::Grant& grant : rights->grants) {
    absl::StrAppend(&grants, RoleName(grant.role), " in ", grant.tenant, "\n");
  }
  return grants;
}

// The token of the header "Authorization: Bearer TOKEN"; empty: the request has none.
absl::string_view BearerToken(absl::string_view request) {
  constexpr absl::string_view kScheme = "bearer ";
  for (absl::string_view line : absl::StrSplit(request, "\r\n")) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos ||
        !absl::EqualsIgnoreCase(line.substr(0, colon), "authorization")) {
      continue;
    }
    line = absl::StripAsciiWhitespace(line.substr(colon + 1));
    if (!absl::StartsWithIgnoreCase(line, kScheme)) return "";
    return absl::StripAsciiWhitespace(line.substr(kScheme.size()));
  }
  return "";
}

}  // namespace

std::string MetricsText(const MetricsEndpoint::Sources& sources, const Rights* rights) {
  std::vector<prometheus::MetricFamily> families;
  for (const auto& source : sources) {
    std::vector<prometheus::MetricFamily> some = source->Collect();
    std::move(some.begin(), some.end(), std::back_inserter(families));
  }
  for (prometheus::MetricFamily& family : families) {
    if (rights == nullptr) break;
    auto& metrics = family.metric;
    metrics.erase(std::remove_if(metrics.begin(), metrics.end(),
                                 [&](const auto& metric) { return !IsFor(*rights, metric); }),
                  metrics.end());
  }
  return prometheus::TextSerializer().Serialize(families);
}

// One connection: its handshake, its request, then its answer.
class MetricsEndpoint::Scrape final : public EventLoop::Handler,
                                      public std::enable_shared_from_this<Scrape> {
 public:
  Scrape(MetricsEndpoint& endpoint, UniqueFd fd)
      : endpoint_(endpoint), fd_(std::move(fd)), socket_{fd_.get(), nullptr} {
    Extend();
    if (endpoint.access_.tls == nullptr) return;
    socket_.tls =
        TlsSession::Accept(endpoint.access_.tls->Current(Clock::Steady().Now()), fd_.get());
    handshaking_ = true;
  }

  int fd() const { return fd_.get(); }
  bool late(Instant now) const { return now > deadline_; }
  bool has_sent() const { return !request_.empty() || (socket_.tls != nullptr && !handshaking_); }
  bool is_answered() const { return !answer_.empty(); }

  void OnEvents(uint32_t) override {
    if (!fd_.is_open()) return;
    if (handshaking_ && !PassHandshake()) return;
    if (answer_.empty() && !ReadRequest()) return;
    WriteAnswer();
  }

  void Close() {
    const auto self = shared_from_this();
    endpoint_.loop_.Remove(fd_.get());
    endpoint_.scrapes_.remove(self);
    fd_ = UniqueFd();
  }

 private:
  void Extend() { deadline_ = Clock::Steady().Now() + endpoint_.timeout_; }

  // Whether the handshake is done.
  bool PassHandshake() {
    switch (socket_.tls->Handshake()) {
      case TlsSession::Progress::kDone:
        handshaking_ = false;
        endpoint_.loop_.Modify(fd_.get(), EPOLLIN);
        return true;
      case TlsSession::Progress::kWantInput:
        endpoint_.loop_.Modify(fd_.get(), EPOLLIN);
        return false;
      case TlsSession::Progress::kWantOutput:
        endpoint_.loop_.Modify(fd_.get(), EPOLLOUT);
        return false;
      case TlsSession::Progress::kFailed:
        break;
    }
    (void)endpoint_.audit_.Deny(
        absl::StrCat("the TLS handshake of a scrape failed: ", socket_.tls->error().message()),
        {"", PeerAddressAndPortOf(fd_.get())}, Clock::Steady().Now());
    Close();
    return false;
  }

  // Whether there is something to write now.
  bool ReadRequest() {
    char part[4096];
    do {
      const ssize_t count = socket_.Receive(part, sizeof(part));
      if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
      if (count <= 0) {
        Close();
        return false;
      }
      request_.append(part, static_cast<size_t>(count));
    } while (!RequestEnds() && socket_.HasInput());
    if (!RequestEnds()) return false;
    answer_ = request_.size() <= kMostRequestBytes
                  ? endpoint_.Answer(request_, socket_)
                  : Response("431 Request Header Fields Too Large", "text/plain",
                             absl::StrCat("a request has at most ", kMostRequestBytes, " bytes\n"));
    Extend();
    return true;
  }

  bool RequestEnds() const {
    return request_.size() > kMostRequestBytes || absl::StrContains(request_, kHeadersEnd);
  }

  void WriteAnswer() {
    while (written_ < answer_.size()) {
      const ssize_t count = socket_.Send(absl::string_view(answer_).substr(written_));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0 && errno == EAGAIN) {
        endpoint_.loop_.Modify(fd_.get(), EPOLLOUT);
        return;
      }
      if (count <= 0) break;
      written_ += static_cast<size_t>(count);
    }
    Close();
  }

  MetricsEndpoint& endpoint_;
  UniqueFd fd_;
  StreamSocket socket_;
  bool handshaking_ = false;
  Instant deadline_ = absl::InfinitePast();
  std::string request_;
  std::string answer_;
  size_t written_ = 0;
};

void MetricsEndpoint::CloseOldest() {
  if (scrapes_.empty()) return;
  const auto first = [this](const auto& may_go) {
    return std::find_if(scrapes_.begin(), scrapes_.end(), may_go);
  };
  auto oldest = first([](const auto& scrape) { return !scrape->has_sent(); });
  if (oldest == scrapes_.end()) {
    oldest = first([](const auto& scrape) { return !scrape->is_answered(); });
  }
  const std::shared_ptr<Scrape> closed = oldest == scrapes_.end() ? scrapes_.front() : *oldest;
  closed->Close();
}

class MetricsEndpoint::Acceptor final : public EventLoop::Handler {
 public:
  Acceptor(MetricsEndpoint& endpoint, int fd) : endpoint_(endpoint), fd_(fd) {}

  void OnEvents(uint32_t) override {
    // A few at a time: the rest of a request is read before its connection could go.
    for (int i = 0; i < kAcceptsAtATime; ++i) {
      UniqueFd fd(accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!fd.is_open()) {
        if (errno == ECONNABORTED || errno == EINTR) continue;
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) Rest();
        return;
      }
      if (endpoint_.scrapes_.size() >= endpoint_.most_connections_) endpoint_.CloseOldest();
      auto scrape = std::make_shared<Scrape>(endpoint_, std::move(fd));
      if (!endpoint_.loop_.Add(scrape->fd(), EPOLLIN, scrape)) continue;
      endpoint_.scrapes_.push_back(scrape);
      endpoint_.loop_.SetTicking(true);
      scrape->OnEvents(EPOLLIN);
    }
  }

 private:
  // The kernel would report the waiting connection again and again.
  void Rest() {
    if (!ConnectionWaits(fd_)) return;
    endpoint_.CloseOldest();
    endpoint_.loop_.Modify(fd_, 0);
    endpoint_.resting_.push_back(fd_);
    endpoint_.loop_.SetTicking(true);
  }

  MetricsEndpoint& endpoint_;
  const int fd_;
};

absl::StatusOr<std::unique_ptr<MetricsEndpoint>> MetricsEndpoint::Start(const std::string& address,
                                                                        Sources sources,
                                                                        MetricsAccess access,
                                                                        absl::Duration timeout) {
  COHORT_ASSIGN_OR_RETURN(const ListenAddress parsed, ParseListenAddress(address));
  if (parsed.is_unix()) return absl::InvalidArgumentError(absl::StrCat(address, " has no port"));
  absl::StatusOr<std::vector<ListenSocket>> sockets = ListenSocket::Open(parsed);
  if (!sockets.ok()) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics: ", sockets.status().message()));
  }
  auto endpoint = absl::WrapUnique(
      new MetricsEndpoint(*std::move(sockets), std::move(sources), std::move(access), timeout));
  COHORT_RETURN_IF_ERROR(endpoint->loop_.Start());
  return endpoint;
}

MetricsEndpoint::MetricsEndpoint(std::vector<ListenSocket> sockets, Sources sources,
                                 MetricsAccess access, absl::Duration timeout)
    : sockets_(std::move(sockets)),
      sources_(std::move(sources)),
      access_(std::move(access)),
      timeout_(timeout),
      most_connections_(MostConnections()),
      loop_("metrics", kTick, [this] { OnTick(); }) {
  for (const ListenSocket& socket : sockets_) {
    // A connection comes with its first bytes: no flood of silent ones takes the place of a request
    // that has not been read.
    const auto seconds = static_cast<int>(std::max<int64_t>(absl::ToInt64Seconds(timeout_), 1));
    setsockopt(socket.fd(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
    loop_.Add(socket.fd(), EPOLLIN, std::make_shared<Acceptor>(*this, socket.fd()));
  }
}

MetricsEndpoint::~MetricsEndpoint() = default;

void MetricsEndpoint::OnTick() {
  for (const int fd : std::exchange(resting_, {})) loop_.Modify(fd, EPOLLIN);
  const Instant now = Clock::Steady().Now();
  for (auto it = scrapes_.begin(); it != scrapes_.end();) {
    const std::shared_ptr<Scrape> scrape = *it++;
    if (scrape->late(now)) scrape->Close();
  }
  loop_.SetTicking(!scrapes_.empty() || !resting_.empty());
}

absl::StatusOr<std::shared_ptr<const Rights>> MetricsEndpoint::Admit(const std::string& request,
                                                                     const StreamSocket& socket) {
  if (access_.policy == nullptr) return nullptr;
  const Instant now = Clock::Steady().Now();
  const std::string address = PeerAddressAndPortOf(socket.fd);
  auto peer = std::make_shared<PeerAccess>(
      access_.policy, NamesOfPeer(socket.fd, socket.tls == nullptr ? nullptr : &socket.tls->peer()),
      address);
  const absl::string_view token = BearerToken(request);
  if (!token.empty()) peer = peer->WithToken(token);
  const std::shared_ptr<const Rights> rights = peer->Current(now);
  const Role role = rights->HighestRole();
  if (role >= Role::kObserver) return rights;
  return audit_.Deny({"metrics", Role::kObserver, ""}, {*rights->identity, address}, role, now);
}

std::string MetricsEndpoint::Answer(const std::string& request, const StreamSocket& socket) {
  const bool head = absl::StartsWith(request, "HEAD ");
  if (!head && !absl::StartsWith(request, "GET ")) {
    return Response("405 Method Not Allowed", "text/plain", "GET /metrics\n");
  }
  absl::string_view path = absl::string_view(request).substr(head ? 5 : 4);
  path = path.substr(0, path.find_first_of(" ?\r\n"));
  if (path != "/metrics") return Response("404 Not Found", "text/plain", "GET /metrics\n", !head);
  const absl::StatusOr<std::shared_ptr<const Rights>> rights = Admit(request, socket);
  if (!rights.ok()) {
    return Response("403 Forbidden", "text/plain", absl::StrCat(rights.status().message(), "\n"),
                    !head);
  }
  return Response("200 OK", "text/plain; version=0.0.4; charset=utf-8", Text(rights->get()), !head);
}

const std::string& MetricsEndpoint::Text(const Rights* rights) {
  const Instant begin = Clock::Steady().Now();
  std::string grants = GrantsOf(rights);
  if (begin >= text_is_old_at_ || !OthersWait() || grants != text_is_for_) {
    text_ = MetricsText(sources_, rights);
    text_is_for_ = std::move(grants);
    const Instant end = Clock::Steady().Now();
    text_is_old_at_ = end + (end - begin);
  }
  return text_;
}

bool MetricsEndpoint::OthersWait() const {
  return scrapes_.size() > 1 ||
         std::any_of(sockets_.begin(), sockets_.end(),
                     [](const ListenSocket& socket) { return ConnectionWaits(socket.fd()); });
}

}  // namespace cohort
