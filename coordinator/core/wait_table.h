// The parked calls of a shard: who holds each, since when, until when.
#ifndef COHORT_COORDINATOR_CORE_WAIT_TABLE_H_
#define COHORT_COORDINATOR_CORE_WAIT_TABLE_H_

#include <utility>
#include <vector>

#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "base/clock.h"
#include "coordinator/core/account.h"
#include "coordinator/core/reply.h"
#include "coordinator/core/step.h"

namespace cohort::coordinator {

// Something that calls wait in. It keeps its own list of those calls; the table only knows that they are its.
class WaitOwner {
 public:
  // The caller is gone (or is answered by somebody else): drop the call from the list, do not answer it.
  virtual void Forget(Step& step, CallId id) = 0;
  // Its wait ended: drop it and answer it.
  virtual void TimeOut(Step& step, CallId id) = 0;
  // Fills group, member, rank, operation and waits_on, for people.
  virtual void Explain(CallId id, ParkedCall& parked) const = 0;

 protected:
  ~WaitOwner() = default;
};

class WaitTable {
 public:
  // What a parked call costs the state machine: its entry here, its owner's, and the engine's. What
  // gRPC holds for it is charged by the service.
  static constexpr int64_t kParkedCallCost = 400;

  explicit WaitTable(Tally& tally) : charge_(tally, MemoryKind::kCalls) {}

  struct Entry {
    WaitOwner* owner = nullptr;
    Instant since;
    Instant deadline;
  };

  void Park(CallId id, WaitOwner* owner, Instant since, Instant deadline) {
    waits_[id] = Entry{owner, since, deadline};
    deadlines_.insert({deadline, id});
    charge_.Add(kParkedCallCost);
  }
  // The owner has answered or dropped it. Unknown ids are fine.
  void Done(CallId id) {
    auto it = waits_.find(id);
    if (it == waits_.end()) return;
    deadlines_.erase({it->second.deadline, id});
    waits_.erase(it);
    charge_.Add(-kParkedCallCost);
  }
  const Entry* Find(CallId id) const {
    auto it = waits_.find(id);
    return it == waits_.end() ? nullptr : &it->second;
  }

  // The caller went away.
  void Cancel(Step& step, CallId id) {
    const Entry* entry = Find(id);
    if (entry == nullptr) return;
    WaitOwner* owner = entry->owner;
    Done(id);
    owner->Forget(step, id);
  }
  // Ends the waits whose time is over. An owner may answer others meanwhile.
  void Run(Step& step) {
    while (!deadlines_.empty() && deadlines_.begin()->first <= step.now()) {
      const CallId id = deadlines_.begin()->second;
      WaitOwner* owner = waits_.at(id).owner;
      Done(id);
      owner->TimeOut(step, id);
    }
  }
  // Their callers have waited `by` longer than the core's time says.
  void Advance(absl::Duration by) {
    deadlines_.clear();
    for (auto& [id, entry] : waits_) {
      entry.since -= by;
      entry.deadline -= by;
      deadlines_.insert({entry.deadline, id});
    }
  }
  Instant Next() const {
    return deadlines_.empty() ? absl::InfiniteFuture() : deadlines_.begin()->first;
  }
  size_t size() const { return waits_.size(); }
  std::vector<CallId> Ids() const {
    std::vector<CallId> ids;
    ids.reserve(waits_.size());
    for (const auto& [deadline, id] : deadlines_) ids.push_back(id);
    return ids;
  }

 private:
  absl::flat_hash_map<CallId, Entry> waits_;
  absl::btree_set<std::pair<Instant, CallId>> deadlines_;
  Charge charge_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_WAIT_TABLE_H_
