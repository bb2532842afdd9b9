// The calls that concern all shards of the engine.
#include <algorithm>
#include <utility>

#include "coordinator/service/engine/engine.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kMaxDumpedCalls = 10000;

}  // namespace

Reply Engine::Ask(Shard& shard, Call call, uint64_t* must_wait_for) {
  Answers answers;
  Effects effects;
  Prepare(effects);
  Reply own;
  own.status = absl::InternalError("a call for all shards was not answered at once");
  {
    MutexLock lock(&shard.mutex);
    const CallId id = ++shard.last_id;
    own.id = call.id = id;
    shard.core->Handle(Begin(shard), std::move(call), effects);
    auto it = std::find_if(effects.replies.begin(), effects.replies.end(),
                           [id](const Reply& reply) { return reply.id == id; });
    if (it == effects.replies.end()) {
      shard.core->Cancel(Begin(shard), id, effects);
    } else {
      own = std::move(*it);
      effects.replies.erase(it);
    }
    Route(shard, 0, nullptr, effects, &answers);
    *must_wait_for = std::max(*must_wait_for, shard.last_step);
  }
  Deliver(std::move(answers), effects);
  return own;
}

void Engine::DeliverAfter(uint64_t step, ReplySink* sink, Reply reply) {
  Answers answers;
  answers.push_back(Answer{sink, std::move(reply)});
  if (durable_ && step > committer_->durable()) {
    // The committer delivers in order, so this reply comes after all steps whose effects it may
    // have seen.
    committer_->Enqueue({}, std::move(answers));
    return;
  }
  Deliver(std::move(answers));
}

void Engine::ListGroups(Call call, ReplySink* sink) {
  if (closed_.load() || failed()) return Reject(0, sink);
  const size_t page_size = std::get<ListGroupsCall>(call.body).page_size;
  uint64_t step = 0;
  ListGroupsReply all;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    Reply reply = Ask(*shard, call, &step);
    auto* part = std::get_if<ListGroupsReply>(&reply.body);
    if (!reply.status.ok() || part == nullptr) return DeliverAfter(step, sink, std::move(reply));
    std::move(part->groups.begin(), part->groups.end(), std::back_inserter(all.groups));
  }
  std::sort(all.groups.begin(), all.groups.end(),
            [](const GroupInfo& a, const GroupInfo& b) { return a.name < b.name; });
  if (all.groups.size() > page_size) all.groups.resize(page_size);
  DeliverAfter(step, sink, Reply{0, absl::OkStatus(), nullptr, std::move(all)});
}

void Engine::DumpWaits(Call call, ReplySink* sink) {
  if (closed_.load() || failed()) return Reject(0, sink);
  uint64_t step = 0;
  DumpWaitsReply all;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    std::vector<GroupKey> keys;
    {
      MutexLock lock(&shard->mutex);
      keys = shard->core->GroupKeys(call.caller.key.tenant);
    }
    // The tenant's own store is in one of the shards; the others know of no wait there.
    keys.push_back(GroupKey{call.caller.key.tenant, ""});
    // One group at a time under the lock: a dump must not stop the others.
    for (GroupKey& key : keys) {
      if (sink->IsInVain()) {
        return DeliverAfter(0, sink, Reply{0, absl::CancelledError("the caller went away")});
      }
      Call part = call;
      part.caller.key = std::move(key);
      Reply reply = Ask(*shard, std::move(part), &step);
      auto* dump = std::get_if<DumpWaitsReply>(&reply.body);
      if (dump == nullptr) continue;  // closed meanwhile
      all.total_count += dump->total_count;
      for (ParkedCall& parked : dump->calls) {
        if (all.calls.size() < kMaxDumpedCalls) all.calls.push_back(std::move(parked));
      }
    }
  }
  DeliverAfter(step, sink, Reply{0, absl::OkStatus(), nullptr, std::move(all)});
}

EngineStats Engine::Stats() const {
  EngineStats stats;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    MutexLock lock(&shard->mutex);
    const CoreStats part = shard->core->Stats();
    stats.total.group_count += part.group_count;
    stats.total.member_count += part.member_count;
    stats.total.waiter_count += part.waiter_count;
    stats.total.barriers_released += part.barriers_released;
    stats.total.members_lost += part.members_lost;
    stats.total.objects_expired += part.objects_expired;
    stats.calls += shard->calls;
  }
  const MemoryAccount& account = *accounts_->whole();
  stats.total.bytes_held = account.value_bytes();
  for (int kind = 0; kind < kMemoryKindCount; ++kind) {
    stats.memory[kind] = account.held(static_cast<MemoryKind>(kind));
  }
  stats.charged_bytes = account.held();
  stats.tenants = accounts_->All();
  stats.uptime = clock_.Now() - started_ + clock_.asleep();
  stats.server_incarnation = server_incarnation_;
  stats.boot = boot_;
  stats.draining = draining();
  stats.journal = journal_->name();
  return stats;
}

void Engine::SetLimits(const Limits& limits) {
  {
    MutexLock lock(&limits_mutex_);
    limits_versions_.push_back(std::make_unique<const Limits>(limits));
    limits_.store(limits_versions_.back().get(), std::memory_order_release);
  }
  for (const std::unique_ptr<Shard>& shard : shards_) {
    MutexLock lock(&shard->mutex);
    shard->core->SetLimits(limits);
  }
}

DrainResult Engine::Drain(bool release_waiters, bool resume) {
  DrainResult result;
  draining_.store(!resume || closed_.load());
  for (const std::unique_ptr<Shard>& shard : shards_) {
    Step(*shard, [&](Core& core, Instant now, Effects& effects) {
      core.SetDraining(now, !resume, effects);
      const int64_t before = core.Stats().waiter_count;
      if (release_waiters) core.ReleaseAll(now, effects);
      const CoreStats after = core.Stats();
      result.released_count += before - after.waiter_count;
      result.waiter_count += after.waiter_count;
      result.group_count += after.group_count;
    });
  }
  return result;
}

}  // namespace cohort::coordinator
