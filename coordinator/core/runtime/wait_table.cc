#include "coordinator/core/runtime/wait_table.h"

#include <algorithm>

namespace cohort::coordinator {

void WaitTable::Park(CallId id, WaitOwner* owner, Tally& tally, Instant since, Instant deadline) {
  CallId& newest = owner->waits().newest_;
  waits_[id] = Entry{owner, &tally, service_bytes_, since, deadline, newest};
  if (newest != 0) waits_.at(newest).newer = id;
  newest = id;
  deadlines_.insert({deadline, id});
  tally.Add(MemoryKind::kCalls, kParkedCallCost);
  tally.account()->Count(QuotaKind::kWaiters, 1);
  if (service_bytes_ != 0) tally.account()->AddToThis(MemoryKind::kCalls, service_bytes_);
}

void WaitTable::Done(CallId id) {
  auto it = waits_.find(id);
  if (it == waits_.end()) return;
  deadlines_.erase({it->second.deadline, id});
  const Entry& entry = it->second;
  if (entry.older != 0) waits_.at(entry.older).newer = entry.newer;
  if (entry.newer != 0) {
    waits_.at(entry.newer).older = entry.older;
  } else {
    entry.owner->waits().newest_ = entry.older;
  }
  entry.tally->Add(MemoryKind::kCalls, -kParkedCallCost);
  entry.tally->account()->Count(QuotaKind::kWaiters, -1);
  if (entry.service_bytes != 0) {
    entry.tally->account()->AddToThis(MemoryKind::kCalls, -entry.service_bytes);
  }
  waits_.erase(it);
}

const WaitTable::Entry* WaitTable::Find(CallId id) const {
  auto it = waits_.find(id);
  return it == waits_.end() ? nullptr : &it->second;
}

void WaitTable::Cancel(Step& step, CallId id) {
  const Entry* entry = Find(id);
  if (entry == nullptr) return;
  WaitOwner* owner = entry->owner;
  Done(id);
  owner->Forget(step, id);
}

void WaitTable::Run(Step& step) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= step.now()) {
    const CallId id = deadlines_.begin()->second;
    WaitOwner* owner = waits_.at(id).owner;
    Done(id);
    owner->TimeOut(step, id);
  }
}

void WaitTable::Advance(absl::Duration by) {
  deadlines_.clear();
  for (auto& [id, entry] : waits_) {
    entry.since -= by;
    entry.deadline -= by;
    deadlines_.insert({entry.deadline, id});
  }
}

std::vector<CallId> WaitTable::Ids() const {
  std::vector<CallId> ids;
  ids.reserve(waits_.size());
  for (const auto& [deadline, id] : deadlines_) ids.push_back(id);
  return ids;
}

std::vector<CallId> WaitTable::IdsOf(const WaitOwner& owner) const {
  std::vector<CallId> ids;
  for (CallId id = owner.waits().newest_; id != 0; id = waits_.at(id).older) ids.push_back(id);
  std::reverse(ids.begin(), ids.end());
  return ids;
}

}  // namespace cohort::coordinator
