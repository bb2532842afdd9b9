// Actions to run at an instant. It has no clock; its owner passes the time.
#ifndef COHORT_COORDINATOR_CORE_RUNTIME_TIMERS_H_
#define COHORT_COORDINATOR_CORE_RUNTIME_TIMERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "coordinator/core/runtime/step.h"

namespace cohort::coordinator {

// 0: no timer.
using TimerId = int64_t;

class Timers {
 public:
  using Action = std::function<void(Step&)>;

  TimerId Schedule(Instant at, Action action) {
    const TimerId id = ++last_id_;
    due_.emplace(Key{at, id}, std::move(action));
    when_.emplace(id, at);
    return id;
  }
  // Unknown ids and 0 are fine. Sets `id` to 0.
  void Cancel(TimerId& id) {
    auto it = when_.find(id);
    if (it != when_.end()) {
      due_.erase(Key{it->second, id});
      when_.erase(it);
    }
    id = 0;
  }
  // Runs all actions that are due, in order of time, and those that they schedule for now or
  // before.
  void Run(Step& step) {
    while (!due_.empty() && due_.begin()->first.first <= step.now()) {
      auto node = due_.extract(due_.begin());
      when_.erase(node.key().second);
      node.mapped()(step);
    }
  }
  Instant Next() const { return due_.empty() ? absl::InfiniteFuture() : due_.begin()->first.first; }

 private:
  using Key = std::pair<Instant, TimerId>;
  std::map<Key, Action> due_;
  absl::flat_hash_map<TimerId, Instant> when_;
  TimerId last_id_ = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_TIMERS_H_
