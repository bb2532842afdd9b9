#include "client/rendezvous/lane_loop.h"

#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "client/rendezvous/lane_link.h"

namespace cohort::client {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(500);

struct Watched {
  Mutex mutex;
  std::vector<std::weak_ptr<LaneLink>> links ABSL_GUARDED_BY(mutex);
};

Watched& AllWatched() {
  static auto* const watched = new Watched;
  return *watched;
}

void OnTick() {
  // First, because a call that begins to wait from here on sets it again.
  LaneLoop().SetTicking(false);
  Watched& watched = AllWatched();
  std::vector<std::weak_ptr<LaneLink>> links;
  {
    MutexLock lock(&watched.mutex);
    links.swap(watched.links);
  }
  std::vector<std::weak_ptr<LaneLink>> living;
  bool waiting = false;
  for (std::weak_ptr<LaneLink>& weak : links) {
    const std::shared_ptr<LaneLink> link = weak.lock();
    if (link == nullptr || link->ended()) continue;
    waiting = link->Expire(Clock::Steady().Now()) || waiting;
    living.push_back(std::move(weak));
  }
  if (waiting) LaneLoop().SetTicking(true);
  MutexLock lock(&watched.mutex);
  watched.links.insert(watched.links.end(), std::make_move_iterator(living.begin()),
                       std::make_move_iterator(living.end()));
}

lane::EventLoop& AsideLoop() {
  static auto* const aside = new lane::EventLoop("cohort-aside");
  return *aside;
}

}  // namespace

absl::Status StartLaneLoops() {
  COHORT_RETURN_IF_ERROR(LaneLoop().Start());
  return AsideLoop().Start();
}

lane::EventLoop& LaneLoop() {
  static auto* const loop = new lane::EventLoop("cohort-lane", kTick, OnTick);
  return *loop;
}

void WatchDeadlines(std::weak_ptr<LaneLink> link) {
  Watched& watched = AllWatched();
  {
    MutexLock lock(&watched.mutex);
    watched.links.push_back(std::move(link));
  }
  LaneLoop().SetTicking(true);
}

void RunAside(std::function<void()> task) { AsideLoop().Post(std::move(task)); }

}  // namespace cohort::client
