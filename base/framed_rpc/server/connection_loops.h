// The threads that serve the connections of a server, each many of them.
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_CONNECTION_LOOPS_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_CONNECTION_LOOPS_H_

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/keep_alive.h"
#include "base/threads/event_loop.h"
#include "base/threads/fair_turns.h"
#include "base/threads/mutex.h"

namespace cohort::framed_rpc {

// `Connection` is an EventLoop::Handler that closes its descriptor, and has CloseSoon and
// WaitUntilWritten as ServerConnection has. Thread-safe.
template <typename Connection>
class ConnectionLoops {
 public:
  // The threads are called `name`-0 and so on.
  ConnectionLoops(const std::string& name, int threads) {
    for (int i = 0; i < std::max(1, threads); ++i) {
      loops_.push_back(std::make_unique<Loop>(absl::StrCat(name, "-", i)));
    }
  }
  ~ConnectionLoops() { Stop(absl::ZeroDuration()); }

  // Adds the connection make(loop, turns) for `fd`, or closes `fd` after Stop. `has_input`: bytes for it
  // may have been read from the socket, which then does not say that there are some.
  template <typename Make>
  void Adopt(int fd, bool has_input, Make make) {
    SetKeepAlive(fd, kIdleS, kProbeS, kProbes);
    // Probes rest while something sent is unanswered.
    SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (kIdleS + kProbes * kProbeS) * 1000);
    MutexLock lock(&mutex_);
    if (stopped_) {
      close(fd);
      return;
    }
    Loop& chosen = *loops_[next_loop_++ % loops_.size()];
    EventLoop& loop = chosen.events;
    const std::shared_ptr<Connection> connection = make(loop, chosen.turns);
    if (!loop.Add(fd, EPOLLIN, connection)) return connection->CloseSoon();
    if (has_input) loop.Post([connection] { connection->OnEvents(EPOLLIN); });
    if (connections_.size() >= sweep_at_) {
      connections_.erase(std::remove_if(connections_.begin(), connections_.end(),
                                        [](const auto& weak) { return weak.expired(); }),
                         connections_.end());
      sweep_at_ = std::max<size_t>(64, connections_.size() * 2);
    }
    connections_.push_back(connection);
  }

  // Sends pending answers for at most `grace`, then closes all connections.
  void Stop(absl::Duration grace) {
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

 private:
  // A peer whose machine is gone is noticed within kIdleS + kProbes * kProbeS seconds.
  static constexpr int kIdleS = 30;
  static constexpr int kProbeS = 5;
  static constexpr int kProbes = 4;

  struct Loop {
    explicit Loop(const std::string& name) : events(name) {}
    FairTurns turns{events};
    EventLoop events;  // last: its thread ends first
  };

  std::vector<std::unique_ptr<Loop>> loops_;
  Mutex mutex_;
  size_t next_loop_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::weak_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 64;
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_CONNECTION_LOOPS_H_
