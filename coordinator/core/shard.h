// What the parts of one shard share.
#ifndef COHORT_COORDINATOR_CORE_SHARD_H_
#define COHORT_COORDINATOR_CORE_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "coordinator/core/limits.h"
#include "coordinator/core/payload.h"
#include "coordinator/core/timers.h"
#include "coordinator/core/types.h"
#include "coordinator/core/wait_table.h"

namespace cohort::coordinator {

class Group;

struct Shard {
  Limits limits;
  // Counts the starts of this journal, from 1. Counters that are not kept start at FirstNumber().
  int64_t boot = 1;
  bool draining = false;
  Timers timers;
  WaitTable waits;
  std::shared_ptr<ByteLedger> ledger;
  // The coordinator did not run a moment ago. Connections that ended meanwhile say nothing about their members, who
  // have until then to connect again, at least.
  Instant resumed_until = absl::InfinitePast();

  // What a group that begins counts from: larger than every number that an earlier boot, or an earlier group of
  // this one, can have given out. So a receipt or a revision of a closed group means nothing to its successor.
  int64_t FirstNumber() const { return std::max((boot - 1) << 32, last_number_of_closed); }
  int64_t last_number_of_closed = 0;
  // Groups whose watchers hear at the end of the step what happened in it.
  std::vector<Group*> telling;
  // Groups that ended and are still to be taken off.
  std::vector<GroupKey> closed;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_SHARD_H_
