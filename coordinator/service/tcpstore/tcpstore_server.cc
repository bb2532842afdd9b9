#include "coordinator/service/tcpstore/tcpstore_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/framed_rpc/keep_alive.h"

namespace cohort::coordinator::tcpstore {
namespace {

// A client whose machine is gone is noticed within kIdleS + kProbes * kProbeS seconds.
constexpr int kIdleS = 30;
constexpr int kProbeS = 5;
constexpr int kProbes = 4;

int LocalPortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return 0;
}

}  // namespace

Server::Server(const ServerOptions& options, Dispatcher& dispatcher)
    : dispatcher_(dispatcher), jobs_(dispatcher.engine(), options.ports) {
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    loops_.push_back(std::make_unique<EventLoop>(absl::StrCat("tcpstore-", i)));
  }
}

Server::~Server() { Stop(absl::ZeroDuration()); }

void Server::Adopt(int fd, ListenerPeer peer) {
  framed_rpc::SetKeepAlive(fd, kIdleS, kProbeS, kProbes);
  framed_rpc::SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  // Probes rest while something sent is unanswered.
  framed_rpc::SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (kIdleS + kProbes * kProbeS) * 1000);
  MutexLock lock(&mutex_);
  if (stopped_) {
    close(fd);
    return;
  }
  EventLoop& loop = *loops_[next_loop_++ % loops_.size()];
  auto connection = std::make_shared<Connection>(fd, LocalPortOf(fd), loop, dispatcher_, jobs_,
                                                 std::move(peer));
  if (!loop.Add(fd, EPOLLIN, connection)) return connection->CloseSoon();
  if (connections_.size() >= sweep_at_) {
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                      [](const auto& weak) { return weak.expired(); }),
                       connections_.end());
    sweep_at_ = std::max<size_t>(64, connections_.size() * 2);
  }
  connections_.push_back(connection);
}

void Server::Stop(absl::Duration grace) {
  std::vector<std::weak_ptr<Connection>> connections;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    stopped_ = true;
    connections.swap(connections_);
  }
  const Instant end = Clock::Steady().Now() + grace;
  for (const std::weak_ptr<Connection>& weak : connections) {
    const std::shared_ptr<Connection> connection = weak.lock();
    if (connection == nullptr) continue;
    connection->WaitUntilWritten(std::max(end - Clock::Steady().Now(), absl::ZeroDuration()));
  }
  for (const std::weak_ptr<Connection>& weak : connections) {
    const std::shared_ptr<Connection> connection = weak.lock();
    if (connection != nullptr) connection->CloseSoon();
  }
  loops_.clear();  // runs their pending tasks first
}

}  // namespace cohort::coordinator::tcpstore
