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

  TimerId Schedule(Instant at, Action action);
  // Unknown ids and 0 are fine. Sets `id` to 0.
  void Cancel(TimerId& id);
  // Runs all actions that are due, in order of time, and those that they schedule for now or
  // before.
  void Run(Step& step);
  Instant Next() const { return due_.empty() ? absl::InfiniteFuture() : due_.begin()->first.first; }

 private:
  using Key = std::pair<Instant, TimerId>;
  std::map<Key, Action> due_;
  absl::flat_hash_map<TimerId, Instant> when_;
  TimerId last_id_ = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_TIMERS_H_
