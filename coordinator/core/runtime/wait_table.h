// The parked calls of a shard: the owner, the begin and the deadline of each.
#ifndef COHORT_COORDINATOR_CORE_RUNTIME_WAIT_TABLE_H_
#define COHORT_COORDINATOR_CORE_RUNTIME_WAIT_TABLE_H_

#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/runtime/step.h"

namespace cohort::coordinator {

// The calls of one owner, in the order in which they came.
class WaitList {
 private:
  friend class WaitTable;
  CallId newest_ = 0;  // 0: none waits
};

// A part of the state machine in which calls wait. It knows what each of them waits for; the table
// knows the owner of each call.
class WaitOwner {
 public:
  // Removes the call from the list and does not answer it: the caller is gone, or another part has
  // answered the call.
  virtual void Forget(Step& step, CallId id) = 0;
  // Removes the call, whose wait has ended, from the list and answers it.
  virtual void TimeOut(Step& step, CallId id) = 0;
  // Fills rank, operation and waits_on, for people, and the name of a member that has no rank yet.
  virtual void Explain(CallId id, ParkedCall& parked) const = 0;

  // For the table.
  WaitList& waits() { return waits_; }
  const WaitList& waits() const { return waits_; }

 protected:
  ~WaitOwner() = default;

 private:
  WaitList waits_;
};

class WaitTable {
 public:
  // The memory of a parked call in the state machine: its entries in this table, in its owner and
  // in the engine. The service charges gRPC's memory for it.
  static constexpr int64_t kParkedCallCost = 400;

  struct Entry {
    WaitOwner* owner = nullptr;
    Tally* tally = nullptr;
    int64_t service_bytes = 0;
    Instant since;
    Instant deadline;
    // The neighbours in the owner's list; 0: no call.
    CallId older = 0;
    CallId newer = 0;
  };

  // `tally` is that of the call's tenant, and outlives the wait.
  void Park(CallId id, WaitOwner* owner, Tally& tally, Instant since, Instant deadline);
  // Calls that are parked from now on have this Call::service_bytes.
  void SetServiceBytes(int64_t bytes) { service_bytes_ = bytes; }
  // The owner has answered or dropped the call. Unknown ids are fine.
  void Done(CallId id);
  const Entry* Find(CallId id) const;

  // The caller went away.
  void Cancel(Step& step, CallId id);
  // Ends the waits whose deadline has passed. An owner may answer other calls meanwhile.
  void Run(Step& step);
  // Moves all waits back by `by`: their callers have waited that much longer than the core's time
  // says.
  void Advance(absl::Duration by);
  Instant Next() const {
    return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  }
  size_t size() const { return waits_.size(); }
  // The calls of all owners, by deadline.
  std::vector<CallId> Ids() const;
  // The calls of one owner, the oldest first.
  std::vector<CallId> IdsOf(const WaitOwner& owner) const;

 private:
  absl::flat_hash_map<CallId, Entry> waits_;
  absl::btree_set<std::pair<Instant, CallId>> deadlines_;
  int64_t service_bytes_ = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_RUNTIME_WAIT_TABLE_H_
