// What one input to the state machine caused.
#ifndef COHORT_COORDINATOR_CORE_EFFECTS_H_
#define COHORT_COORDINATOR_CORE_EFFECTS_H_

#include <vector>

#include "coordinator/core/record.h"
#include "coordinator/core/reply.h"

namespace cohort::coordinator {

// What people will want to read about a group afterwards.
struct GroupNote {
  GroupKey key;
  GroupEvent event;
};

struct Effects {
  // Set to false by a shell whose journal keeps nothing: then no records are made.
  bool wants_records = true;
  // Set to true by a shell that tells somebody of what happens to groups.
  bool wants_notes = false;
  std::vector<Reply> replies;
  std::vector<Record> records;
  std::vector<GroupNote> notes;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EFFECTS_H_
