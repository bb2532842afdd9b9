// The state that the parts of one shard share.
#ifndef COHORT_COORDINATOR_CORE_RUNTIME_SHARD_H_
#define COHORT_COORDINATOR_CORE_RUNTIME_SHARD_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/interface/limits.h"
#include "coordinator/core/interface/tenant_accounts.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/core/runtime/tenant_tallies.h"
#include "coordinator/core/runtime/timers.h"
#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {

class GroupEvents;

struct Shard {
  explicit Shard(std::shared_ptr<TenantAccounts> accounts) : tallies(std::move(accounts)) {}
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  Limits limits;
  // Counts the starts of this journal, from 1. Counters that the journal does not keep start at
  // FirstNumber().
  int64_t boot = 1;
  bool draining = false;
  Timers timers;
  TenantTallies tallies;
  WaitTable waits;
  // The coordinator was stopped or suspended recently. Connections that ended meanwhile say nothing
  // about their members, which may connect again at least until this instant.
  Instant resumed_until = absl::InfinitePast();

  // The number from which a new group counts. It is larger than every number that an earlier boot,
  // or a closed group of this boot, can have given out. A new group of the same name therefore does
  // not know the revisions of the closed one.
  int64_t FirstNumber() const { return std::max((boot - 1) << 32, last_number_of_closed); }
  int64_t last_number_of_closed = 0;
  // Tenants whose store dropped its last key, item or parked call in this step.
  std::vector<std::string> perhaps_idle;
  // Gives out receipts, each once. A client that knows a receipt can free its value, so the engine
  // gives out random ones. Without an engine they are counted.
  std::function<int64_t()> next_receipt = [this, count = int64_t{0}]() mutable {
    return ((boot - 1) << 32) + ++count;
  };
  // The groups' events that watchers get at the end of the step.
  std::vector<GroupEvents*> to_notify;
  // Groups that were closed and have to be destroyed.
  std::vector<GroupKey> closed;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_SHARD_H_
