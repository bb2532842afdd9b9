#include "base/framed_rpc/server/framed_rpc_server.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/keep_alive.h"

namespace cohort::framed_rpc {
namespace {

// A peer whose machine is gone is noticed within kIdleS + kProbes * kProbeS seconds.
constexpr int kIdleS = 30;
constexpr int kProbeS = 5;
constexpr int kProbes = 4;

}  // namespace

Server::Server(const ServerOptions& options, std::vector<std::string> methods,
               std::shared_ptr<CallHandler> handler)
    : context_(std::make_shared<const ConnectionContext>(ConnectionContext{
          ServerProtocol(std::move(methods), static_cast<size_t>(options.max_message_bytes)),
          std::move(handler), static_cast<size_t>(std::max(0, options.max_concurrent_calls)),
          options.limits})) {
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    loops_.push_back(std::make_unique<EventLoop>(absl::StrCat("framed-", i)));
  }
}

Server::~Server() { Stop(absl::ZeroDuration()); }

void Server::Adopt(int fd, ListenerPeer peer) {
  SetKeepAlive(fd, kIdleS, kProbeS, kProbes);
  // Probes rest while something sent is unanswered.
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (kIdleS + kProbes * kProbeS) * 1000);
  MutexLock lock(&mutex_);
  if (stopped_) {
    close(fd);
    return;
  }
  EventLoop& loop = *loops_[next_loop_++ % loops_.size()];
  auto connection = std::make_shared<ServerConnection>(fd, context_, loop, std::move(peer));
  if (!loop.Add(fd, EPOLLIN, connection)) return;
  if (connections_.size() >= sweep_at_) {
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                      [](const auto& weak) { return weak.expired(); }),
                       connections_.end());
    sweep_at_ = std::max<size_t>(64, connections_.size() * 2);
  }
  connections_.push_back(connection);
}

void Server::Stop(absl::Duration grace) {
  std::vector<std::weak_ptr<ServerConnection>> connections;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    stopped_ = true;
    connections.swap(connections_);
  }
  const Instant end = Clock::Steady().Now() + grace;
  for (const std::weak_ptr<ServerConnection>& weak : connections) {
    const std::shared_ptr<ServerConnection> connection = weak.lock();
    if (connection == nullptr) continue;
    connection->WaitUntilWritten(std::max(end - Clock::Steady().Now(), absl::ZeroDuration()));
  }
  for (const std::weak_ptr<ServerConnection>& weak : connections) {
    const std::shared_ptr<ServerConnection> connection = weak.lock();
    if (connection != nullptr) connection->CloseSoon();
  }
  loops_.clear();  // runs their pending tasks first
}

}  // namespace cohort::framed_rpc
