#include "coordinator/service/framed_rpc/framed_rpc_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort::coordinator {
namespace {

// A peer whose machine is gone is noticed within kIdleS + kProbes * kProbeS seconds.
constexpr int kIdleS = 30;
constexpr int kProbeS = 5;
constexpr int kProbes = 4;

FramedRpcProtocol MakeProtocol(const FramedRpcServerOptions& options, Dispatcher& dispatcher) {
  FramedRpcProtocol protocol{dispatcher,
                             {},
                             {},
                             static_cast<size_t>(options.max_message_bytes),
                             static_cast<size_t>(std::max(0, options.max_concurrent_calls)),
                             options.limits};
  std::string names;
  for (size_t i = 0; i < kMethodCount; ++i) {
    const Method method = static_cast<Method>(i);
    if (!IsFramedMethod(method)) continue;
    protocol.methods.push_back(method);
    absl::StrAppend(&names, GetMethod(method).service, "/", GetMethod(method).name, "\n");
  }
  framed_rpc::Header header;
  header.kind = framed_rpc::Kind::kHello;
  header.body_bytes = static_cast<uint32_t>(names.size());
  protocol.hello = std::string(framed_rpc::kPreface);
  framed_rpc::AppendHeader(header, &protocol.hello);
  protocol.hello += names;
  return protocol;
}

void Set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

// Fails without harm on Unix sockets, whose peers cannot vanish unnoticed.
void KeepAlive(int fd) {
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  // Probes rest while something sent is unanswered.
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (kIdleS + kProbes * kProbeS) * 1000);
}

}  // namespace

bool IsFramedMethod(Method method) {
  switch (method) {
    case Method::kUpload:
    case Method::kDownload:
    case Method::kWatchGroup:
    case Method::kWatch:
    case Method::kListGroups:
    case Method::kDumpWaits:
      return false;
    default:
      return true;
  }
}

FramedRpcServer::FramedRpcServer(const FramedRpcServerOptions& options, Dispatcher& dispatcher)
    : protocol_(MakeProtocol(options, dispatcher)) {
  for (int i = 0; i < std::max(1, options.threads); ++i) {
    loops_.push_back(std::make_unique<EventLoop>(absl::StrCat("framed-", i)));
  }
}

FramedRpcServer::~FramedRpcServer() { Stop(absl::ZeroDuration()); }

void FramedRpcServer::Adopt(int fd, FramedRpcPeer peer) {
  KeepAlive(fd);
  MutexLock lock(&mutex_);
  if (stopped_) {
    close(fd);
    return;
  }
  EventLoop& loop = *loops_[next_loop_++ % loops_.size()];
  auto connection = std::make_shared<FramedRpcConnection>(fd, protocol_, loop, std::move(peer));
  if (!loop.Add(fd, EPOLLIN, connection)) return;
  if (connections_.size() >= sweep_at_) {
    connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                      [](const auto& weak) { return weak.expired(); }),
                       connections_.end());
    sweep_at_ = std::max<size_t>(64, connections_.size() * 2);
  }
  connections_.push_back(connection);
}

void FramedRpcServer::Stop(absl::Duration grace) {
  std::vector<std::weak_ptr<FramedRpcConnection>> connections;
  {
    MutexLock lock(&mutex_);
    if (stopped_) return;
    stopped_ = true;
    connections.swap(connections_);
  }
  const Instant end = Clock::Steady().Now() + grace;
  for (const std::weak_ptr<FramedRpcConnection>& weak : connections) {
    const std::shared_ptr<FramedRpcConnection> connection = weak.lock();
    if (connection == nullptr) continue;
    connection->WaitUntilWritten(std::max(end - Clock::Steady().Now(), absl::ZeroDuration()));
  }
  for (const std::weak_ptr<FramedRpcConnection>& weak : connections) {
    const std::shared_ptr<FramedRpcConnection> connection = weak.lock();
    if (connection != nullptr) connection->CloseSoon();
  }
  loops_.clear();  // runs their pending tasks first
}

}  // namespace cohort::coordinator
