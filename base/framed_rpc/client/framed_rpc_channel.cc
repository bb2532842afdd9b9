#include "base/framed_rpc/client/framed_rpc_channel.h"

#include <netdb.h>
#include <string.h>
#include <sys/un.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/framed_rpc/client/client_event_loop.h"

namespace cohort::framed_rpc {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(100);
constexpr absl::Duration kLongestPause = absl::Seconds(10);

// Without the port, and without the brackets of an IPv6 address.
absl::string_view HostOf(absl::string_view address) {
  absl::string_view host = address.substr(0, address.rfind(':'));
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  return host;
}

// `flags`: AI_NUMERICHOST looks up no name. Empty if the name does not resolve.
std::vector<SocketAddress> Resolve(absl::string_view address, int flags) {
  std::vector<SocketAddress> result;
  if (absl::ConsumePrefix(&address, "unix:")) {
    absl::ConsumePrefix(&address, "//");
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    if (address.size() >= sizeof(name.sun_path)) return result;
    memcpy(name.sun_path, address.data(), address.size());
    memcpy(&result.emplace_back().storage, &name, sizeof(name));
    result.back().size = sizeof(name);
    return result;
  }
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos) return result;
  addrinfo hints = {};
  hints.ai_flags = flags | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string host(HostOf(address));
  const std::string port(address.substr(colon + 1));
  if (getaddrinfo(host.c_str(), port.c_str(), &hints, &found) != 0) {
    return result;
  }
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    if (one->ai_addrlen > sizeof(sockaddr_storage)) continue;
    memcpy(&result.emplace_back().storage, one->ai_addr, one->ai_addrlen);
    result.back().size = one->ai_addrlen;
  }
  freeaddrinfo(found);
  return result;
}

}  // namespace

ChannelOptions Channel::ForAddress(ChannelOptions options, absl::string_view address) {
  options.host = std::string(HostOf(address));
  return options;
}

Channel::~Channel() {
  if (connection_ != nullptr) connection_->Close();
}

Route Channel::RouteOf(absl::string_view path) {
  Route route;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kReady) {
      const int number = connection_->Number(path);
      if (number < 0) return route;
      if (options_.tls != nullptr && connection_->CloseIfFilesChanged(clock_.Now())) {
        return route;
      }
      route.connection = connection_;
      route.method = static_cast<uint16_t>(number);
      return route;
    }
    if (!std::exchange(used_, true) || !BeginLocked()) return route;
  }
  Connect();
  return route;
}

bool Channel::BeginLocked() {
  if (state_ != State::kNone || clock_.Now() < retry_at_) return false;
  state_ = State::kConnecting;
  connecting_since_ = clock_.Now();
  return true;
}

void Channel::ExpectCalls() {
  MutexLock lock(&mutex_);
  used_ = true;
}

bool Channel::WhenSettled(std::function<void()> then) {
  bool connect = false;
  {
    MutexLock lock(&mutex_);
    connect = used_ && BeginLocked();
    if (state_ != State::kConnecting) return false;
    if (clock_.Now() - connecting_since_ > options_.connect_timeout) return false;
    settled_.push_back(std::move(then));
  }
  if (connect) Connect();
  return true;
}

std::string Channel::tls_error() const {
  MutexLock lock(&mutex_);
  return tls_error_;
}

void Channel::Connect() {
  const auto connect = [weak = weak_from_this(),
                        options = options_](std::vector<SocketAddress> addresses) {
    const std::shared_ptr<Channel> self = weak.lock();
    if (self == nullptr) return;
    std::shared_ptr<ClientConnection> connection = ClientConnection::Connect(
        std::move(addresses), options,
        [weak] {
          if (const auto self = weak.lock(); self != nullptr) self->OnReady();
        },
        [weak](ClientConnection::End end, const std::string& why) {
          if (const auto self = weak.lock(); self != nullptr) self->OnEnd(end, why);
        });
    // The loop's thread reports the connection's events, after this task at the earliest.
    MutexLock lock(&self->mutex_);
    self->connection_ = std::move(connection);
  };
  std::vector<SocketAddress> numeric = Resolve(address_, AI_NUMERICHOST);
  if (!numeric.empty()) {
    ClientEventLoop().Post([connect, numeric = std::move(numeric)] { connect(numeric); });
    return;
  }
  RunAside([connect, address = address_] {
    ClientEventLoop().Post([connect, found = Resolve(address, 0)] { connect(found); });
  });
}

void Channel::OnReady() {
  std::vector<std::function<void()>> settled;
  {
    MutexLock lock(&mutex_);
    state_ = State::kReady;
    ready_.store(true, std::memory_order_release);
    tls_error_.clear();
    pause_ = absl::ZeroDuration();
    settled.swap(settled_);
  }
  for (const auto& then : settled) then();
}

void Channel::OnEnd(ClientConnection::End end, const std::string& why) {
  std::shared_ptr<ClientConnection> ended;  // outlives the lock
  std::vector<std::function<void()>> settled;
  {
    MutexLock lock(&mutex_);
    ended = std::move(connection_);
    ready_.store(false, std::memory_order_release);
    settled.swap(settled_);
    if (end == ClientConnection::End::kTls) tls_error_ = why;
    if (end == ClientConnection::End::kNotOurs) {
      state_ = State::kRefused;
    } else if (std::exchange(state_, State::kNone) != State::kReady) {
      pause_ = pause_ == absl::ZeroDuration() ? kFirstPause : std::min(pause_ * 2, kLongestPause);
      retry_at_ = clock_.Now() + pause_;
    }
  }
  for (const auto& then : settled) then();
}

}  // namespace cohort::framed_rpc
