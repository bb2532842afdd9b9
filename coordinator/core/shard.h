// What the parts of one shard share.
#ifndef COHORT_COORDINATOR_CORE_SHARD_H_
#define COHORT_COORDINATOR_CORE_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/account.h"
#include "coordinator/core/limits.h"
#include "coordinator/core/timers.h"
#include "coordinator/core/types.h"
#include "coordinator/core/wait_table.h"

namespace cohort::coordinator {

class Group;

struct Shard {
  explicit Shard(std::shared_ptr<Account> account = std::make_shared<Account>())
      : tally(std::move(account)) {}

  Limits limits;
  // Counts the starts of this journal, from 1. Counters that are not kept start at FirstNumber().
  int64_t boot = 1;
  bool draining = false;
  Timers timers;
  Tally tally;  // before all that charges it
  WaitTable waits{tally};
  // The coordinator did not run a moment ago. Connections that ended meanwhile say nothing about their members, who
  // have until then to connect again, at least.
  Instant resumed_until = absl::InfinitePast();

  // What a group that begins counts from: larger than every number that an earlier boot, or an earlier group of
  // this one, can have given out. So a receipt or a revision of a closed group means nothing to its successor.
  int64_t FirstNumber() const { return std::max((boot - 1) << 32, last_number_of_closed); }
  int64_t last_number_of_closed = 0;
  // Tenants whose store let go of its last key, item or parked call in this step.
  std::vector<std::string> perhaps_idle;
  // Groups whose watchers hear at the end of the step what happened in it.
  std::vector<Group*> telling;
  // Groups that ended and are still to be taken off.
  std::vector<GroupKey> closed;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_SHARD_H_
