// Opens a connection: tries addresses one after the other, then reads the greeting. All on the
// loop's thread.
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_split.h"
#include "base/fork.h"
#include "base/framed_rpc/client/client_connection.h"
#include "base/framed_rpc/client/client_event_loop.h"
#include "base/framed_rpc/keep_alive.h"

namespace cohort::framed_rpc {
namespace {

constexpr size_t kGreetingBytes = size_t{16} << 10;  // read at once
constexpr size_t kMaxHelloBytes = size_t{1} << 20;
constexpr int kProbeS = 5;
constexpr int kProbes = 3;

// All connections of a process talk to few kinds of server, so they share the servers' lists of
// methods.
std::shared_ptr<const ClientConnection::Numbers> ParseNumbers(absl::string_view names) {
  static Mutex mutex;
  static auto* const last_names = new std::string;
  static auto* const last = new std::shared_ptr<const ClientConnection::Numbers>;
  MutexLock lock(&mutex);
  if (*last != nullptr && *last_names == names) return *last;
  auto numbers = std::make_shared<ClientConnection::Numbers>();
  for (absl::string_view name : absl::StrSplit(names, '\n', absl::SkipEmpty())) {
    numbers->emplace(std::string(name), static_cast<uint16_t>(numbers->size()));
  }
  *last_names = std::string(names);
  *last = std::move(numbers);
  return *last;
}

}  // namespace

std::shared_ptr<ClientConnection> ClientConnection::Connect(std::vector<SocketAddress> addresses,
                                                            const ChannelOptions& options,
                                                            std::function<void()> on_ready,
                                                            OnEnd on_end) {
  std::shared_ptr<ClientConnection> connection(
      new ClientConnection(std::move(addresses), options, std::move(on_ready), std::move(on_end)));
  WatchDeadlines(connection);
  ClientEventLoop().Post([connection] { connection->ConnectNext(); });
  return connection;
}

void ClientConnection::ConnectNext() {
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded) return;
  }
  if (fd_ >= 0) {
    ClientEventLoop().Remove(fd_);
    tls_.reset();
    close(std::exchange(fd_, -1));
  }
  while (next_address_ < addresses_.size()) {
    const SocketAddress& address = addresses_[next_address_++];
    fd_ = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd_ < 0) continue;
    CloseInChildren(fd_);
    SetKeepAlive(fd_, std::max(1, static_cast<int>(absl::ToInt64Seconds(options_.keepalive))),
                 kProbeS, kProbes);
    // These fail without harm on Unix sockets.
    SetOption(fd_, IPPROTO_TCP, TCP_NODELAY, 1);
    SetOption(fd_, IPPROTO_TCP, TCP_USER_TIMEOUT, kProbeS * kProbes * 1000);
    const int result =
        connect(fd_, reinterpret_cast<const sockaddr*>(&address.storage), address.size);
    if (result == 0 || errno == EINPROGRESS) {
      {
        MutexLock lock(&mutex_);
        state_ = State::kConnecting;
        events_ = EPOLLOUT;
      }
      if (ClientEventLoop().Add(fd_, EPOLLOUT, shared_from_this())) return;
    }
    close(std::exchange(fd_, -1));
  }
  Finish(End::kBroken, "no address accepted a connection");
}

void ClientConnection::OnConnected() {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return ConnectNext();
  if (options_.tls == nullptr) return SendPreface();
  tls_ = TlsSession::Connect(options_.tls->Current(Clock::Steady().Now()), fd_, options_.host);
  {
    MutexLock lock(&mutex_);
    state_ = State::kHandshake;
  }
  OnHandshake();
}

void ClientConnection::OnHandshake() {
  const TlsSession::Progress progress = tls_->Handshake();
  switch (progress) {
    case TlsSession::Progress::kDone:
      return SendPreface();
    case TlsSession::Progress::kFailed:
      return FailHandshake();
    case TlsSession::Progress::kWantInput:
    case TlsSession::Progress::kWantOutput:
      break;
  }
  MutexLock lock(&mutex_);
  blocked_ = progress == TlsSession::Progress::kWantOutput;
  UpdateEvents(!blocked_);
}

void ClientConnection::FailHandshake() {
  const absl::Status error = tls_->error();
  Finish(absl::IsUnavailable(error) ? End::kBroken : End::kTls, std::string(error.message()));
}

void ClientConnection::SendPreface() {
  MutexLock lock(&mutex_);
  state_ = State::kGreeting;
  blocked_ = false;
  output_.Append(kPreface);
  SendNewToken();
  if (!options_.client_names.empty()) WriteFrame(Kind::kClient, options_.client_names);
  Write("");
  UpdateEvents(true);
}

void ClientConnection::SendNewToken() {
  if (options_.tls == nullptr || options_.token == nullptr) return;
  const std::optional<std::string> token =
      options_.token->IfNew(Clock::Steady().Now(), &token_version_);
  if (!token.has_value()) return;
  WriteFrame(Kind::kToken, *token);
}

void ClientConnection::WriteFrame(Kind kind, absl::string_view body) {
  std::string frame;
  Header header;
  header.kind = kind;
  header.body_bytes = static_cast<uint32_t>(body.size());
  AppendHeader(header, &frame);
  Write(absl::StrCat(frame, body));
}

// Returns whether the whole greeting has arrived; numbers_ is then set.
bool ClientConnection::ReadGreeting() {
  char* const room = input_.Room(kGreetingBytes);
  const ssize_t count = stream().Receive(room, kGreetingBytes);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (count > 0) input_.Filled(static_cast<size_t>(count));
  absl::string_view preface;
  const bool whole = input_.Peek(kPreface.size(), &preface);
  if (whole && preface != kPreface) {
    Finish(End::kNotOurs, "the server does not speak framed RPC");
    return false;
  }
  if (count <= 0) {
    // A server that refuses the certificate says so after the client's handshake.
    const bool refused = tls_ != nullptr && !tls_->error().ok();
    refused ? FailHandshake() : Finish(End::kBroken, "the connection broke");
  }
  if (count <= 0 || !whole) return false;
  // The bytes are parsed again with the hello; nothing is skipped until the hello is complete.
  absl::string_view start;
  if (!input_.Peek(kPreface.size() + kHeaderBytes, &start)) return false;
  FrameReader hello(kMaxHelloBytes);
  start.remove_prefix(kPreface.size());
  memcpy(hello.Room(start.size()), start.data(), start.size());
  hello.Filled(start.size());
  Frame frame;
  if (hello.Read(&frame) == FrameReader::Next::kMore) {
    absl::string_view all;
    if (!input_.Peek(kPreface.size() + kHeaderBytes + hello.wanted(), &all)) {
      return false;
    }
  }
  input_.Skip(kPreface.size());
  if (input_.Read(&frame) != FrameReader::Next::kFrame || frame.header.kind != Kind::kHello) {
    Finish(End::kNotOurs, "the server does not speak framed RPC");
    return false;
  }
  numbers_ = ParseNumbers(frame.body);
  return true;
}

}  // namespace cohort::framed_rpc
