// The effects of one input to the state machine.
#ifndef COHORT_COORDINATOR_CORE_EFFECTS_H_
#define COHORT_COORDINATOR_CORE_EFFECTS_H_

#include <vector>

#include "coordinator/core/record.h"
#include "coordinator/core/reply.h"

namespace cohort::coordinator {

// An event of a group, for the log.
struct GroupNote {
  GroupKey key;
  GroupEvent event;
};

struct Effects {
  // False: the shell's journal keeps nothing, and no records are made.
  bool wants_records = true;
  // True: the shell logs the events of groups.
  bool wants_notes = false;
  std::vector<Reply> replies;
  std::vector<Record> records;
  std::vector<GroupNote> notes;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EFFECTS_H_
