// The interface through which the engine reports to metrics and logs.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_ENGINE_OBSERVER_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_ENGINE_OBSERVER_H_

#include <cstddef>

#include "absl/time/time.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/interface/types.h"

namespace cohort::coordinator {

// The engine calls it on its own and on the callers' threads, without a lock. It must be quick.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  // Once for each round, when its members are answered.
  virtual void OnRoundEnd(const RoundEnd& end) = 0;
  // Once for each event of a group, in its order; it may not be durable yet.
  virtual void OnGroupEvent(const GroupKey& key, const GroupEvent& event) = 0;
  // Once for each write to the journal.
  virtual void OnAppend(absl::Duration took, size_t record_count) = 0;
  // The process did not run for this time (stopped, suspended, or without a processor). The leases
  // were extended by it.
  virtual void OnAsleep(absl::Duration /*asleep*/) {}
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_ENGINE_OBSERVER_H_
