// What one input to the state machine caused.
#ifndef COHORT_COORDINATOR_CORE_EFFECTS_H_
#define COHORT_COORDINATOR_CORE_EFFECTS_H_

#include <vector>

#include "coordinator/core/record.h"
#include "coordinator/core/reply.h"

namespace cohort::coordinator {

struct Effects {
  // Set to false by a shell whose journal keeps nothing: then no records are made.
  bool wants_records = true;
  std::vector<Reply> replies;
  std::vector<Record> records;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EFFECTS_H_
