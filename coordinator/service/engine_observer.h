// What the engine tells whoever counts.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_OBSERVER_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_OBSERVER_H_

#include <cstddef>

#include "absl/time/time.h"
#include "coordinator/core/reply.h"
#include "coordinator/core/types.h"

namespace cohort::coordinator {

// Called on the engine's and the callers' threads, with no lock held; must be quick.
class EngineObserver {
 public:
  virtual ~EngineObserver() = default;
  // Once for each round, when its members are answered.
  virtual void OnRoundEnd(const RoundEnd& end) = 0;
  // Once for each event of a group, in its order; it may not be durable yet.
  virtual void OnGroupEvent(const GroupKey& key, const GroupEvent& event) = 0;
  // Once for each write to the journal.
  virtual void OnAppend(absl::Duration took, size_t record_count) = 0;
  // The process did not run for so long (stopped, suspended, or without a processor). Leases were
  // extended by it.
  virtual void OnAsleep(absl::Duration /*asleep*/) {}
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_OBSERVER_H_
