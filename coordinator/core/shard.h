// What the parts of one shard share.
#ifndef COHORT_COORDINATOR_CORE_SHARD_H_
#define COHORT_COORDINATOR_CORE_SHARD_H_

#include <cstdint>
#include <memory>

#include "coordinator/core/limits.h"
#include "coordinator/core/payload.h"
#include "coordinator/core/timers.h"
#include "coordinator/core/wait_table.h"

namespace cohort::coordinator {

struct Shard {
  Limits limits;
  // Counts the starts of this journal, from 1. Counters that are not kept start at FirstNumber().
  int64_t boot = 1;
  bool draining = false;
  Timers timers;
  WaitTable waits;
  std::shared_ptr<ByteLedger> ledger;

  // Larger than every number an earlier boot can have given out.
  int64_t FirstNumber() const { return (boot - 1) << 32; }
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_SHARD_H_
