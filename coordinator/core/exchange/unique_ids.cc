#include "coordinator/core/exchange/unique_ids.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/fingerprint.h"

namespace cohort::coordinator {
namespace {

std::string Title(const std::string& name) { return absl::StrCat("fetch of unique ids \"", name, "\""); }

// Tells a repeat from another id; no secret can be read from it.
uint64_t Digest(const std::vector<std::string>& ids) {
  cohort::Fingerprint digest;
  for (const std::string& id : ids) digest.Add(id).Add(uint64_t{id.size()});
  return digest.value();
}

}  // namespace

UniqueIds::~UniqueIds() {
  for (const auto& [id, name] : parked_) group_.shard.waits.Done(id);
}

UniqueIds::Ids* UniqueIds::FindOrAdd(Step& step, CallId id, const std::string& name) {
  auto it = names_.find(name);
  if (it != names_.end()) return &it->second;
  if (static_cast<int64_t>(names_.size()) >= group_.shard.limits.max_unique_id_names) {
    step.Fail(id, absl::ResourceExhaustedError(absl::StrCat(
                      "generation ", group_.generation, " of group ", group_.key.group, " has ",
                      names_.size(), " unique id names; max_unique_id_names is ",
                      group_.shard.limits.max_unique_id_names)));
    return nullptr;
  }
  Ids* const added = &names_[name];
  Recharge(name, *added);
  return added;
}

void UniqueIds::Recharge(const std::string& name, Ids& ids) {
  if (ids.charge.bytes() == 0) ids.charge = Charge(*group_.tally, MemoryKind::kUniqueIds);
  int64_t cost = NodeCost<std::pair<std::string, Ids>>() + CostOf(name) + CostOf(ids.ids) +
                 BlockCost(group_.world_size / 8);
  for (const auto& [rank, progress] : ids.progress) {
    cost += NodeCost<std::pair<int, Progress>>() + CostOf(progress.detail);
  }
  ids.charge.Set(cost);
}

void UniqueIds::Publish(Step& step, CallId id, const Member& member, const PublishIdsCall& call) {
  Ids* ids = FindOrAdd(step, id, call.name);
  if (ids == nullptr) return;
  const uint64_t digest = Digest(call.ids);
  if (ids->published) {
    if (ids->digest == digest) {
      step.Answer(id, EmptyReply{});
    } else {
      step.Fail(id, absl::AlreadyExistsError(absl::StrCat(
                        "unique ids \"", call.name, "\" of generation ", group_.generation,
                        " were published by rank ", ids->publisher)));
    }
    return;
  }
  ids->ids = call.ids;
  ids->published = true;
  ids->digest = digest;
  ids->publisher = member.rank;
  ids->receipt = group_.shard.next_receipt();
  ids->unacknowledged = RankSet::All(group_.world_size);
  ids->unacknowledged.Remove(member.rank);
  Recharge(call.name, *ids);
  if (step.keeps_records()) {
    step.Write(group_.key, RecordKind::kUniqueId, call.name,
               UniqueIdRecord{group_.generation, call.name, call.ids, member.rank, ids->receipt});
  }
  step.Answer(id, EmptyReply{});
  for (const Waiter& waiter : std::exchange(ids->waiters, {})) {
    parked_.erase(waiter.id);
    group_.shard.waits.Done(waiter.id);
    Give(step, waiter.id, *ids);
  }
}

void UniqueIds::Give(Step& step, CallId id, const Ids& ids) {
  FetchIdsReply reply;
  reply.found = true;
  reply.ids = ids.ids;
  reply.publisher = ids.publisher;
  reply.receipt = ids.receipt;
  step.Answer(id, std::move(reply));
}

void UniqueIds::Fetch(Step& step, CallId id, const Member& member, absl::Duration wait,
                      const FetchIdsCall& call) {
  Ids* ids = FindOrAdd(step, id, call.name);
  if (ids == nullptr) return;
  if (ids->published) {
    if (ids->ids.empty()) {
      step.Fail(id, absl::DataLossError(absl::StrCat("unique ids \"", call.name, "\" of generation ",
                                                     group_.generation,
                                                     " were fetched by all and freed")));
    } else {
      Give(step, id, *ids);
    }
    return;
  }
  for (const auto& [rank, cause] : group_.gone) {
    group_.Abort(step, id, Title(call.name), cause);
    return;
  }
  ids->waiters.push_back({id, member.rank, step.now()});
  parked_[id] = call.name;
  group_.shard.waits.Park(id, this, *group_.tally, step.now(), step.now() + wait);
}

void UniqueIds::Report(Step& step, CallId id, const Member& member, const ReportInitCall& call) {
  Ids* ids = FindOrAdd(step, id, call.name);
  if (ids == nullptr) return;
  Progress& progress = ids->progress[member.rank];
  ids->charge.Add((progress.at == Instant() ? NodeCost<std::pair<int, Progress>>() : 0) +
                  CostOf(call.detail) - CostOf(progress.detail));
  progress = Progress{call.phase, call.detail, step.now()};
  step.Answer(id, EmptyReply{});
}

void UniqueIds::Acknowledge(Step& step, int rank, int64_t receipt) {
  for (auto& [name, ids] : names_) {
    if (ids.receipt != receipt) continue;
    ids.unacknowledged.Remove(rank);
    if (ids.unacknowledged.empty() && !ids.ids.empty()) {
      ids.ids.clear();
      Recharge(name, ids);
      step.Erase(group_.key, RecordKind::kUniqueId, name);
    }
  }
}

void UniqueIds::MemberGone(Step& step, int, const Cause& cause) { Break(step, cause); }

void UniqueIds::Break(Step& step, const Cause& cause) {
  for (auto& [name, ids] : names_) {
    for (const Waiter& waiter : std::exchange(ids.waiters, {})) {
      parked_.erase(waiter.id);
      group_.shard.waits.Done(waiter.id);
      group_.Abort(step, waiter.id, Title(name), cause);
    }
  }
}

void UniqueIds::Clear(Step& step) {
  names_.clear();
  step.EraseAll(group_.key, RecordKind::kUniqueId);
}

void UniqueIds::Restore(const UniqueIdRecord& record) {
  Ids& ids = names_[record.name];
  ids.ids = record.ids;
  ids.published = true;
  ids.digest = Digest(record.ids);
  ids.publisher = record.publisher;
  ids.receipt = record.receipt;
  ids.unacknowledged = RankSet::All(group_.world_size);
  ids.unacknowledged.Remove(record.publisher);
  Recharge(record.name, ids);
}

MissingReport UniqueIds::Missing(Instant now, const Ids& ids) const {
  // Any member may publish, except those that wait in Fetch.
  RankSet waiting;
  for (const Waiter& waiter : ids.waiters) waiting.Add(waiter.rank);
  MissingReport report = group_.roster.Missing(now, RankSet::All(group_.world_size), waiting);
  if (!ids.waiters.empty()) {
    report.first_rank = ids.waiters.front().rank;
    report.last_rank = ids.waiters.back().rank;
    report.since_first = now - ids.waiters.front().since;
    report.skew = ids.waiters.back().since - ids.waiters.front().since;
  }
  return report;
}

void UniqueIds::Describe(Instant now, std::vector<OpenWait>& waits,
                         std::vector<InitStatus>& inits) const {
  for (const auto& [name, ids] : names_) {
    if (!ids.waiters.empty()) {
      OpenWait wait;
      wait.operation = Title(name);
      wait.missing = Missing(now, ids);
      wait.age = now - ids.waiters.front().since;
      if (const auto* entry = group_.shard.waits.Find(ids.waiters.front().id); entry != nullptr) {
        wait.remaining = entry->deadline - now;
      }
      waits.push_back(std::move(wait));
    }
    if (ids.progress.empty()) continue;
    InitStatus status;
    status.name = name;
    for (int rank = 0; rank < group_.world_size && status.ranks.size() < 64; ++rank) {
      auto it = ids.progress.find(rank);
      if (it != ids.progress.end() && it->second.phase == InitPhase::kDone) continue;
      InitRank one;
      one.rank = rank;
      if (const Member* member = group_.roster.ByRank(rank); member != nullptr)
        one.member = member->name;
      one.phase = it == ids.progress.end() ? "not_reported" : InitPhaseName(it->second.phase);
      if (it != ids.progress.end()) {
        one.detail = it->second.detail;
        one.age = now - it->second.at;
      }
      status.ranks.push_back(std::move(one));
    }
    if (!status.ranks.empty()) inits.push_back(std::move(status));
  }
}

void UniqueIds::Forget(Step&, CallId id) {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  auto& waiters = names_.at(it->second).waiters;
  waiters.erase(std::find_if(waiters.begin(), waiters.end(), [id](const Waiter& w) { return w.id == id; }));
  parked_.erase(it);
}

void UniqueIds::TimeOut(Step& step, CallId id) {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  FetchIdsReply reply;
  reply.missing = Missing(step.now(), names_.at(it->second));
  Forget(step, id);
  step.Answer(id, std::move(reply));
}

void UniqueIds::Explain(CallId id, ParkedCall& parked) const {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  parked.operation = Title(it->second);
  const Ids& ids = names_.at(it->second);
  for (const Waiter& waiter : ids.waiters) {
    if (waiter.id == id) parked.rank = waiter.rank;
  }
  parked.waits_on = Missing(absl::InfinitePast(), ids).missing;
}

}  // namespace cohort::coordinator
