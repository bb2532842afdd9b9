// What one input to the state machine caused.
#ifndef COHORT_COORDINATOR_CORE_EFFECTS_H_
#define COHORT_COORDINATOR_CORE_EFFECTS_H_

#include <vector>

#include "coordinator/core/record.h"
#include "coordinator/core/reply.h"

namespace cohort::coordinator {

struct Effects {
  std::vector<Reply> replies;
  std::vector<Record> records;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EFFECTS_H_
