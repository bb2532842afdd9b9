// The control plane as a pure state machine: a call, a tick or a cancellation goes in; replies and
// journal records come out. No thread, no clock, no I/O, no log: `now` is an argument, and
// the same sequence of inputs gives the same outputs. One Core is one shard: everything about a
// (tenant, group) lives in it.
//
// Confined to one thread at a time. Replies and records of a step belong together: a shell must
// make the records durable before it delivers that step's replies, or any later step's.
#ifndef COHORT_COORDINATOR_CORE_CORE_H_
#define COHORT_COORDINATOR_CORE_CORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/effects.h"
#include "coordinator/core/interface/limits.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/tenant_accounts.h"

namespace cohort::coordinator {

struct CoreStats {
  int64_t group_count = 0;
  int64_t member_count = 0;
  int64_t waiter_count = 0;
  int64_t bytes_held = 0;  // of values, of all shards that share the account
  int64_t barriers_released = 0;
  int64_t members_lost = 0;
  int64_t objects_expired = 0;
};

class Core {
 public:
  // `boot` counts the starts of this journal, from 1: sequence numbers and revisions of a later
  // boot are larger than all of an earlier one. `accounts` are shared by shards that have one limit
  // together; null: its own. `next_receipt` gives out positive numbers that cannot be guessed;
  // null: Shard's own numbers.
  Core(const Limits& limits, int64_t boot, std::shared_ptr<TenantAccounts> accounts = nullptr,
       std::function<int64_t()> next_receipt = nullptr);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  // Rebuilds the state of an earlier boot from its rows, in any order; before any call. Every
  // member gets a full lease from `now`.
  void Restore(Instant now, const std::vector<Record>& rows);
  // The same one row at a time, so that the rows need not be held together: first all of kind
  // kGroup, then the others, then the end.
  void RestoreRow(Instant now, const Record& row);
  void FinishRestore(Instant now);

  // Takes one call. Its reply is in `effects` now, or in those of a later input.
  void Handle(Instant now, Call call, Effects& effects);

  // The caller of a parked call went away: the call gets no reply. Unknown ids are fine.
  void Cancel(Instant now, CallId id, Effects& effects);

  // Runs everything that is due at `now`: ends of leases, expiries, ends of waits.
  void Tick(Instant now, Effects& effects);

  // The coordinator did not run for `asleep` (it was stopped, or its machine was suspended), and
  // `now` does not count that time. Leases, graces and expiries continue where they were, because
  // the calls that members sent meanwhile have not been read yet. Waits of parked calls end as
  // promised: their callers did not sleep. Call it before the next input.
  void Resume(Instant now, absl::Duration asleep);

  // The instant of the next Tick; infinite future: not before another input.
  Instant NextTick() const;

  // Draining: new groups and joins are refused UNAVAILABLE, and watchers are notified once.
  void SetDraining(Instant now, bool draining, Effects& effects);
  // Answers every parked call UNAVAILABLE.
  void ReleaseAll(Instant now, Effects& effects);

  void SetLimits(const Limits& limits);
  CoreStats Stats() const;
  const MemoryAccount& account() const;
  // Keys of a tenant's groups, sorted.
  std::vector<GroupKey> GroupKeys(const std::string& tenant) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_CORE_H_
