// The effects of one input to the state machine.
#ifndef COHORT_COORDINATOR_CORE_INTERFACE_EFFECTS_H_
#define COHORT_COORDINATOR_CORE_INTERFACE_EFFECTS_H_

#include <vector>

#include "coordinator/core/interface/record.h"
#include "coordinator/core/interface/reply.h"

namespace cohort::coordinator {

// An event of a group, for the log.
struct GroupLogEvent {
  GroupKey key;
  GroupEvent event;
};

struct Effects {
  // False: the shell's journal keeps nothing, and no records are made.
  bool wants_records = true;
  // True: the shell logs the events of groups.
  bool wants_log_events = false;
  std::vector<Reply> replies;
  std::vector<Record> records;
  std::vector<GroupLogEvent> log_events;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_INTERFACE_EFFECTS_H_
