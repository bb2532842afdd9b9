// What happens to groups, as lines of the log: what people read after an incident.
#ifndef COHORT_COORDINATOR_GROUP_LOG_H_
#define COHORT_COORDINATOR_GROUP_LOG_H_

#include <cstddef>

#include "absl/time/time.h"
#include "coordinator/service/engine_observer.h"

namespace cohort::coordinator {

// Tells `next` everything, too. Losses, breaks and reported errors are warnings; that a group is
// active, changes its view, or is closed, and that a member leaves, is info; that one joins, debug. A
// sleep of the coordinator is a warning.
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
