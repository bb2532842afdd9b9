#include "client/rendezvous/call/connection/timer_queue.h"

#include <map>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "base/threads/thread.h"

namespace cohort::client {

struct TimerQueue::State {
  using Key = std::pair<Instant, uint64_t>;

  Mutex mutex;
  CondVar changed;
  std::map<Key, Task> tasks ABSL_GUARDED_BY(mutex);
  absl::flat_hash_map<uint64_t, Instant> due ABSL_GUARDED_BY(mutex);
  uint64_t last_id ABSL_GUARDED_BY(mutex) = 0;
  bool stopping ABSL_GUARDED_BY(mutex) = false;
};

TimerQueue::TimerQueue() : state_(std::make_shared<State>()) {
  absl::StatusOr<std::thread> thread =
      StartThread("cohort-timers", [state = state_] { Run(state); });
  status_ = thread.status();
  if (thread.ok()) thread_ = *std::move(thread);
}

TimerQueue::~TimerQueue() {
  std::map<State::Key, Task> dropped;
  {
    MutexLock lock(&state_->mutex);
    state_->stopping = true;
    dropped.swap(state_->tasks);
    state_->due.clear();
    state_->changed.Signal();
  }
  // The last owner may let go inside a task. That task's thread cannot join itself, and ends on its
  // own.
  if (OnThread()) {
    thread_.detach();
  } else if (thread_.joinable()) {
    thread_.join();
  }
}

uint64_t TimerQueue::After(absl::Duration delay, Task task) {
  const Instant due = Clock::Steady().Now() + delay;
  MutexLock lock(&state_->mutex);
  const uint64_t id = ++state_->last_id;
  const auto added = state_->tasks.emplace(State::Key{due, id}, std::move(task)).first;
  state_->due[id] = due;
  if (added == state_->tasks.begin()) state_->changed.Signal();
  return id;
}

bool TimerQueue::Cancel(uint64_t id) {
  Task dropped;  // destroyed after unlock: its destructors may call back
  MutexLock lock(&state_->mutex);
  const auto due = state_->due.find(id);
  if (due == state_->due.end()) return false;
  const auto task = state_->tasks.find(State::Key{due->second, id});
  dropped = std::move(task->second);
  state_->tasks.erase(task);
  state_->due.erase(due);
  return true;
}

bool TimerQueue::OnThread() const { return thread_.get_id() == std::this_thread::get_id(); }

void TimerQueue::Run(const std::shared_ptr<State>& state) {
  state->mutex.Lock();
  while (!state->stopping) {
    if (state->tasks.empty()) {
      state->changed.Wait(&state->mutex);
      continue;
    }
    const auto first = state->tasks.begin();
    const absl::Duration left = first->first.first - Clock::Steady().Now();
    if (left > absl::ZeroDuration()) {
      state->changed.WaitWithTimeout(&state->mutex, left);
      continue;
    }
    Task task = std::move(first->second);
    state->due.erase(first->first.second);
    state->tasks.erase(first);
    state->mutex.Unlock();
    task();
    task = nullptr;
    state->mutex.Lock();
  }
  state->mutex.Unlock();
}

}  // namespace cohort::client
