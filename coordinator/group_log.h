// Logs the events of groups, for people who look into an incident.
#ifndef COHORT_COORDINATOR_GROUP_LOG_H_
#define COHORT_COORDINATOR_GROUP_LOG_H_

#include <cstddef>

#include "absl/time/time.h"
#include "coordinator/service/engine/engine_observer.h"

namespace cohort::coordinator {

// Also forwards everything to `next`. Losses, breaks, reported errors and a sleep of the
// coordinator are warnings. A group that becomes active, changes its view or is closed, and a
// member that leaves, are info. A member that joins is debug.
class GroupLog final : public EngineObserver {
 public:
  // `next` outlives it.
  explicit GroupLog(EngineObserver& next) : next_(next) {}

  void OnRoundEnd(const RoundEnd& end) override { next_.OnRoundEnd(end); }
  void OnGroupEvent(const GroupKey& key, const GroupEvent& event) override;
  void OnAppend(absl::Duration took, size_t record_count) override {
    next_.OnAppend(took, record_count);
  }
  void OnAsleep(absl::Duration asleep) override;

 private:
  EngineObserver& next_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_GROUP_LOG_H_
