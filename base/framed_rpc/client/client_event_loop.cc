#include "base/framed_rpc/client/client_event_loop.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/framed_rpc/client/client_connection.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"

namespace cohort::framed_rpc {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);

struct Watched {
  Mutex mutex;
  std::vector<std::weak_ptr<ClientConnection>> connections ABSL_GUARDED_BY(mutex);
};

Watched& AllWatched() {
  static auto* const watched = new Watched;
  return *watched;
}

void OnTick() {
  // First, because a call that begins to wait from here on sets it again.
  ClientEventLoop().SetTicking(false);
  Watched& watched = AllWatched();
  std::vector<std::weak_ptr<ClientConnection>> connections;
  {
    MutexLock lock(&watched.mutex);
    connections.swap(watched.connections);
  }
  std::vector<std::weak_ptr<ClientConnection>> living;
  bool waiting = false;
  for (std::weak_ptr<ClientConnection>& weak : connections) {
    const std::shared_ptr<ClientConnection> connection = weak.lock();
    if (connection == nullptr || connection->ended()) continue;
    waiting = connection->Expire(Clock::Steady().Now()) || waiting;
    living.push_back(std::move(weak));
  }
  if (waiting) ClientEventLoop().SetTicking(true);
  MutexLock lock(&watched.mutex);
  watched.connections.insert(watched.connections.end(), std::make_move_iterator(living.begin()),
                             std::make_move_iterator(living.end()));
}

EventLoop& AsideLoop() {
  static auto* const aside = new EventLoop("cohort-aside");
  return *aside;
}

}  // namespace

absl::Status StartClientEventLoops() {
  COHORT_RETURN_IF_ERROR(ClientEventLoop().Start());
  return AsideLoop().Start();
}

EventLoop& ClientEventLoop() {
  static auto* const loop = new EventLoop("cohort-framed", kTick, OnTick);
  return *loop;
}

void WatchDeadlines(std::weak_ptr<ClientConnection> connection) {
  Watched& watched = AllWatched();
  {
    MutexLock lock(&watched.mutex);
    watched.connections.push_back(std::move(connection));
  }
  ClientEventLoop().SetTicking(true);
}

void RunAside(std::function<void()> task) { AsideLoop().Post(std::move(task)); }

}  // namespace cohort::framed_rpc
