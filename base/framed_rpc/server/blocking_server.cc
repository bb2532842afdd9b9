#include "base/framed_rpc/server/blocking_server.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/framed_rpc/keep_alive.h"
#include "base/framed_rpc/server/request_reader.h"
#include "base/memory/no_memory.h"
#include "base/rpc/token_file.h"
#include "base/text/logging.h"
#include "base/threads/thread.h"

namespace cohort::framed_rpc {
namespace {

// A client that takes no answer for so long is disconnected.
constexpr int kSendSeconds = 30;
// The death of a peer's machine is noticed within kIdleS + kProbes * kProbeS seconds.
constexpr int kIdleS = 20;
constexpr int kProbeS = 5;
constexpr int kProbes = 2;
// The least time between two lines of the log about connections without a thread.
constexpr absl::Duration kBetweenLogs = absl::Seconds(10);

void Prepare(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
  const timeval timeout = {kSendSeconds, 0};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
  SetKeepAlive(fd, kIdleS, kProbeS, kProbes);
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
}

// Waits until the socket is ready for `event`, which is also so when it was shut down. Returns
// false after `timeout_ms`; -1: never.
bool AwaitReady(int fd, short event, int timeout_ms) {
  pollfd waited = {fd, event, 0};
  int ready = 0;
  do {
    ready = poll(&waited, 1, timeout_ms);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// Blocks until there are bytes. Results are those of recv(2).
ssize_t Receive(const StreamSocket& socket, char* room, size_t size) {
  if (socket.tls == nullptr) return recv(socket.fd, room, size, 0);
  while (true) {
    const ssize_t count = socket.Receive(room, size);
    if (count >= 0 || errno != EAGAIN || !AwaitReady(socket.fd, POLLIN, -1)) return count;
  }
}

bool SendAll(const StreamSocket& socket, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = socket.tls == nullptr
                             ? send(socket.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL)
                             : socket.Send(bytes);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN && socket.tls != nullptr &&
        AwaitReady(socket.fd, POLLOUT, kSendSeconds * 1000)) {
      continue;
    }
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

BlockingServer::BlockingServer(const BlockingServerOptions& options,
                               std::vector<std::string> methods, BlockingHandler& handler)
    : protocol_(std::move(methods), static_cast<size_t>(options.max_message_bytes)),
      handler_(handler),
      max_connections_(static_cast<size_t>(std::max(options.max_connections, 0))) {}

BlockingServer::~BlockingServer() { Stop(absl::ZeroDuration()); }

void BlockingServer::Adopt(int fd, ListenerPeer peer) {
  UniqueFd taken(fd);
  Prepare(fd);
  MutexLock lock(&mutex_);
  JoinDone();
  const bool without_role = !peer.HasRole();
  if (without_role) MakeRoomAt(peer.counted_address);
  if (stopped_ || !MakeRoom()) return;
  Connection& connection = connections_.emplace_back();
  connection.fd = std::move(taken);
  connection.peer = std::move(peer);
  connection.without_role = without_role;
  absl::StatusOr<std::thread> thread =
      StartThread("cohort-framed", [this, &connection] { Serve(connection); });
  if (!thread.ok()) {
    connections_.pop_back();
    if (const Instant now = Clock::Steady().Now(); now >= next_log_) {
      next_log_ = now + kBetweenLogs;
      Log(LogLevel::kWarning, "framed RPC connection closed: its client calls by gRPC",
          {{"connections", static_cast<int64_t>(connections_.size())},
           {"why", thread.status().message()}});
    }
    return;
  }
  connection.thread = *std::move(thread);
}

void BlockingServer::Serve(Connection& connection) {
  ServeCalls({connection.fd.get(), connection.peer.tls}, connection);
  MutexLock lock(&mutex_);
  // At most one ended thread is left; the next connection, or Stop, joins it.
  JoinDone();
  connection.fd = UniqueFd();
  connection.done = true;
}

void BlockingServer::ServeCalls(const StreamSocket& socket, Connection& connection) {
  ListenerPeer& peer = connection.peer;
  RequestReader input(protocol_, peer.charged());
  const auto answer = [&](const Frame& frame, const absl::Status& error) {
    if (frame.header.kind != Kind::kToken) {
      if (frame.header.kind == Kind::kCall && error.ok()) peer.NoteRequest();
      return Answer(socket, connection, frame, error);
    }
    if (!error.ok() || frame.body.size() > kMaxTokenBytes) return false;
    if (peer.access != nullptr) peer.access = peer.access->WithToken(frame.body);
    return true;
  };
  Frame frame;
  absl::Status error;
  while (true) {
    size_t size = 0;
    char* const room = input.Room(&size, answer);
    if (room == nullptr) return;
    const ssize_t count = Receive(socket, room, size);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    input.Filled(static_cast<size_t>(count));
    for (bool more = true; more;) {
      switch (input.Read(&frame, &error)) {
        case RequestReader::Next::kPreface:
          if (!SendAll(socket, protocol_.greeting())) return;
          break;
        case RequestReader::Next::kFrame:
          if (!answer(frame, error)) return;
          break;
        case RequestReader::Next::kMore:
          more = false;
          break;
        case RequestReader::Next::kBroken:
          return;
      }
    }
    input.Shrink();
    input.ChargeTo(peer.charged());
    if (!input.Charge(peer.HasRole(), answer)) return;
  }
}

bool BlockingServer::Answer(const StreamSocket& socket, Connection& connection,
                            const Frame& frame, absl::Status status) {
  // A call ends at its timeout or with its session; it cannot be cancelled.
  if (frame.header.kind == Kind::kCancel) return true;
  if (frame.header.kind != Kind::kCall) return false;
  const uint16_t method = frame.header.method;
  std::string answer(kHeaderBytes, '\0');
  std::shared_ptr<const void> kept;
  if (status.ok()) status = protocol_.CheckMethod(method);
  if (status.ok()) {
    status = WithMemory(
        protocol_.MethodName(method), "a request", static_cast<int64_t>(frame.body.size()), [&] {
          return handler_.Run(method, frame.body, connection.peer.access.get(), &answer, &kept);
        });
    if (!absl::IsPermissionDenied(status)) connection.used.store(true, std::memory_order_relaxed);
  }
  std::string error;
  const Header header =
      MakeReplyHeader(frame.header.call, status, answer.size() - kHeaderBytes, &error);
  if (!status.ok()) {
    answer.resize(kHeaderBytes);
    answer += error;
  }
  WriteHeader(header, &answer[0]);
  // A thread for each connection is more than a client without rights may have.
  const bool ends = absl::IsPermissionDenied(status) && connection.peer.IsStranger();
  return SendAll(socket, answer) && !ends;
}

bool BlockingServer::MakeRoom() {
  if (connections_.size() < max_connections_) return true;
  // Those that make room end soon; meanwhile there may be twice as many.
  if (connections_.size() >= 2 * max_connections_) return false;
  for (Connection& connection : connections_) {
    if (connection.closing || connection.used.load(std::memory_order_relaxed)) continue;
    End(connection);
    return true;
  }
  return false;
}

void BlockingServer::MakeRoomAt(const std::string& address) {
  Connection* oldest = nullptr;
  int count = 0;
  for (Connection& connection : connections_) {
    if (!connection.without_role || connection.closing || connection.done) continue;
    if (connection.used.load(std::memory_order_relaxed)) continue;
    if (connection.peer.counted_address != address) continue;
    if (oldest == nullptr) oldest = &connection;
    ++count;
  }
  if (count >= kMaxWithoutRole) End(*oldest);
}

void BlockingServer::End(Connection& connection) {
  connection.closing = true;
  shutdown(connection.fd.get(), SHUT_RDWR);
}

void BlockingServer::JoinDone() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    if (!it->done) {
      ++it;
      continue;
    }
    it->thread.join();  // the thread has ended its work
    it = connections_.erase(it);
  }
}

void BlockingServer::Stop(absl::Duration grace) {
  MutexLock lock(&mutex_);
  stopped_ = true;
  for (Connection& connection : connections_) shutdown(connection.fd.get(), SHUT_RD);
  const auto all_done = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS {
    return std::all_of(connections_.begin(), connections_.end(),
                       [](const Connection& connection) { return connection.done; });
  };
  mutex_.AwaitWithTimeout(absl::Condition(&all_done), grace);
  for (Connection& connection : connections_) shutdown(connection.fd.get(), SHUT_RDWR);
  mutex_.Await(absl::Condition(&all_done));
  JoinDone();
}

}  // namespace cohort::framed_rpc
