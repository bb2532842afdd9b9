// One file, though long: Core::Impl is the state of one shard, and each entry point of core.h is a
// few lines that work on all of it.
#include "coordinator/core/core.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/core/call_cost.h"
#include "coordinator/core/group/group.h"
#include "coordinator/core/runtime/shard.h"
#include "coordinator/core/runtime/step.h"

namespace cohort::coordinator {
namespace {

// Enough to know why a group was closed: the names of many are remembered.
constexpr size_t kMaxClosedDetailBytes = 256;
constexpr size_t kMaxDumped = 10000;
// A live member connects again within this time after the coordinator has slept.
constexpr absl::Duration kReconnectTime = absl::Seconds(10);

// The tenant's own store, which belongs to no group.
struct Namespace {
  Namespace(Shard& s, const GroupKey& key, int64_t first_number)
      : shard(s),
        tally(s.tallies.Of(key.tenant)),
        ledger(std::make_shared<ByteLedger>(tally->account())),
        last_number(first_number),
        operations(tally.get()),
        store(s, key, tally, operations, ledger, &last_number),
        untouched_number(last_number),
        charge(*tally, MemoryKind::kNamespaces, Cost(key)) {}
  ~Namespace() { shard.timers.Cancel(timer); }

  static int64_t Cost(const GroupKey& key) {
    // std::deque sets aside one chunk of 512 bytes, and a table for chunks.
    constexpr int64_t kDeques = 2 * (512 + 64 + 32);
    constexpr int64_t kTimer = 2 * 192;
    return BlockCost(sizeof(Namespace)) + BlockCost(sizeof(ByteLedger) + 16) + kDeques + kTimer +
           NodeCost<std::pair<std::string, std::unique_ptr<Namespace>>>() + 3 * CostOf(key.tenant);
  }

  Shard& shard;
  const std::shared_ptr<Tally> tally;
  std::shared_ptr<ByteLedger> ledger;
  int64_t last_number;
  FirstAnswers operations;
  Store store;
  const int64_t untouched_number;  // `last_number` as long as nothing has happened
  Instant used_at;
  TimerId timer = 0;  // drops answers that are too old
  const Charge charge;
};

template <typename T>
constexpr bool kIsStoreCall =
    std::is_same_v<T, PutCall> || std::is_same_v<T, GetCall> || std::is_same_v<T, RangeCall> ||
    std::is_same_v<T, DeleteCall> || std::is_same_v<T, AddCall> || std::is_same_v<T, AppendCall> ||
    std::is_same_v<T, QueuePushCall> || std::is_same_v<T, QueuePopCall> ||
    std::is_same_v<T, WatchKeysCall>;

// Whether the call may leave keys, items or other state in an empty store.
bool MayKeep(const Call& call) {
  return call.wait > absl::ZeroDuration() || !call.caller.operation_id.empty() ||
         !call.caller.abandoned.empty() ||
         std::visit(
             [](const auto& body) {
               using T = std::decay_t<decltype(body)>;
               return std::is_same_v<T, PutCall> || std::is_same_v<T, AddCall> ||
                      std::is_same_v<T, AppendCall> || std::is_same_v<T, QueuePushCall>;
             },
             call.body);
}

// Publishes the charges of a step to the accounts of all shards at the end of the step.
class Publication {
 public:
  explicit Publication(Shard& shard) : shard_(shard) {}
  ~Publication() { shard_.tallies.Publish(); }
  Publication(const Publication&) = delete;
  Publication& operator=(const Publication&) = delete;

 private:
  Shard& shard_;
};

// The calls that a step parks have these Call::service_bytes.
class ServiceBytes {
 public:
  ServiceBytes(WaitTable& waits, int64_t bytes) : waits_(waits) { waits.SetServiceBytes(bytes); }
  ~ServiceBytes() { waits_.SetServiceBytes(0); }
  ServiceBytes(const ServiceBytes&) = delete;
  ServiceBytes& operator=(const ServiceBytes&) = delete;

 private:
  WaitTable& waits_;
};

}  // namespace

struct Core::Impl {
  explicit Impl(std::shared_ptr<TenantAccounts> accounts)
      : shard(std::move(accounts)),
        closed_charge(shard.tallies.whole(), MemoryKind::kClosedNames) {}
  ~Impl() { account().closed_name_count.fetch_sub(static_cast<int64_t>(closed.size())); }
  MemoryAccount& account() { return *shard.tallies.whole().account(); }

  Shard shard;
  std::map<GroupKey, std::unique_ptr<Group>> groups;
  // By tenant. An empty store is dropped.
  std::map<std::string, std::unique_ptr<Namespace>> namespaces;
  int64_t last_number_of_dropped = 0;  // of those where something had happened
  // Generations of closed groups, so that a name that comes back goes on counting, and what ended
  // them. Not of those that came back.
  struct Closed {
    int64_t generation = 0;
    Cause cause;
    bool in_this_boot = true;  // false: the time of its end is not known
    int64_t order = 0;
  };
  std::map<GroupKey, Closed> closed;
  std::map<int64_t, GroupKey> closed_order;
  Charge closed_charge;
  int64_t last_order = 0;
  int64_t closed_floor = 0;  // of those no longer remembered one by one
  CoreStats totals;          // of groups that were closed

  void OnGroupClosed(Step& step, const GroupKey& key, const Group& group) {
    totals.barriers_released += group.released_barriers();
    totals.members_lost += group.members_lost();
    totals.objects_expired += group.objects_expired();
    shard.last_number_of_closed = std::max(shard.last_number_of_closed, group.last_number());
    Cause cause = group.cause();
    cause.detail = CutText(cause.detail, kMaxClosedDetailBytes);
    RememberClosed(&step, key, Closed{group.generation(), std::move(cause)});
  }

  void RememberClosed(Step* step, const GroupKey& key, Closed group) {
    group.order = ++last_order;
    if (step != nullptr) WriteClosed(*step, key, group);
    closed_charge.Add(CostOfClosed(key, group));
    closed[key] = std::move(group);
    closed_order[last_order] = key;
    account().closed_name_count.fetch_add(1, std::memory_order_relaxed);
    // Each shard drops its own oldest name, and keeps its newest whatever the other shards keep.
    while (closed.size() > 1 &&
           account().closed_name_count.load(std::memory_order_relaxed) >
               std::max<int64_t>(shard.limits.max_closed_names, 1)) {
      ForgetOldestClosed(step);
    }
  }

  // A forgotten name may not go down either: its generation passes to the next oldest, whose row
  // keeps it. Precondition: there are two.
  void ForgetOldestClosed(Step* step) {
    const GroupKey oldest = closed_order.begin()->second;
    closed_floor = std::max(closed_floor, closed.at(oldest).generation);
    ForgetClosed(oldest);
    const GroupKey& heir = closed_order.begin()->second;
    Closed& inherits = closed.at(heir);
    inherits.generation = std::max(inherits.generation, closed_floor);
    if (step == nullptr) return;
    step->Erase(oldest, RecordKind::kGroup, "");
    WriteClosed(*step, heir, inherits);
  }

  static int64_t CostOfClosed(const GroupKey& key, const Closed& group) {
    return NodeCost<std::pair<GroupKey, Closed>>() + NodeCost<std::pair<int64_t, GroupKey>>() +
           2 * (CostOf(key.tenant) + CostOf(key.group)) + CostOf(group.cause.member) +
           CostOf(group.cause.host) + CostOf(group.cause.detail);
  }

  void ForgetClosed(const GroupKey& key) {
    auto it = closed.find(key);
    if (it == closed.end()) return;
    closed_charge.Add(-CostOfClosed(key, it->second));
    account().closed_name_count.fetch_sub(1, std::memory_order_relaxed);
    closed_order.erase(it->second.order);
    closed.erase(it);
  }

  static void WriteClosed(Step& step, const GroupKey& key, const Closed& group) {
    GroupRecord record;
    record.state = GroupState::kClosed;
    record.generation = group.generation;
    record.cause = group.cause;
    step.Write(key, RecordKind::kGroup, "", std::move(record));
  }

  int64_t NextGeneration(const GroupKey& key) const {
    auto it = closed.find(key);
    return (it != closed.end() ? it->second.generation : closed_floor) + 1;
  }

  // "3.2s ago, in generation 4, by member w0 (rank 0) on host-a: job is over".
  static std::string HowClosed(const Closed& group, Instant now) {
    const Cause& cause = group.cause;
    std::string text =
        group.in_this_boot
            ? absl::StrCat(absl::FormatDuration(absl::Trunc(now - cause.at, absl::Milliseconds(1))),
                           " ago")
            : "before the coordinator's last start";
    if (cause.generation != 0) absl::StrAppend(&text, ", in generation ", cause.generation);
    const std::string culprit = cause.Culprit();
    if (!culprit.empty()) absl::StrAppend(&text, ", by ", culprit);
    if (!cause.detail.empty()) absl::StrAppend(&text, ": ", cause.detail);
    return text;
  }

  // Ends each step: watchers get the events, and closed groups are destroyed.
  void Finish(Step& step) {
    for (GroupEvents* events : shard.to_notify) events->NotifyWatchers(step);
    shard.to_notify.clear();
    while (!shard.closed.empty()) {
      auto it = groups.find(shard.closed.back());
      shard.closed.pop_back();
      OnGroupClosed(step, it->first, *it->second);
      groups.erase(it);
    }
    while (!shard.perhaps_idle.empty()) {
      DropIfUnused(shard.perhaps_idle.back());
      shard.perhaps_idle.pop_back();
    }
  }

  Namespace& AddNamespace(Instant now, const GroupKey& key) {
    const int64_t first = std::max((shard.boot - 1) << 32, last_number_of_dropped);
    auto& own = namespaces[key.tenant];
    own = std::make_unique<Namespace>(shard, key, first);
    own->used_at = now;
    return *own;
  }

  void DropIfUnused(const std::string& tenant) {
    auto it = namespaces.find(tenant);
    if (it == namespaces.end()) return;
    const Namespace& own = *it->second;
    if (own.store.unused() && own.operations.size() == 0) DropNamespace(it);
  }

  // A later store of this tenant continues with these numbers, so that it does not know the
  // revisions of this one.
  void DropNamespace(std::map<std::string, std::unique_ptr<Namespace>>::iterator it) {
    const Namespace& own = *it->second;
    if (own.last_number != own.untouched_number) {
      last_number_of_dropped = std::max(last_number_of_dropped, own.last_number);
    }
    namespaces.erase(it);
  }

  // First answers and completed pops keep a store until they are too old to be repeated.
  void ScheduleAging(Instant now, const std::string& tenant) {
    auto it = namespaces.find(tenant);
    if (it == namespaces.end() || it->second->timer != 0) return;
    it->second->timer = shard.timers.Schedule(
        now + FirstAnswers::kMaxAge + absl::Seconds(1), [this, tenant](Step& step) {
          auto found = namespaces.find(tenant);
          if (found == namespaces.end()) return;
          Namespace& own = *found->second;
          own.timer = 0;
          own.operations.DropOld(step, GroupKey{tenant, ""});
          if (own.store.idle() && own.operations.size() == 0 &&
              own.used_at + FirstAnswers::kMaxAge <= step.now()) {
            DropNamespace(found);
          } else {
            ScheduleAging(step.now(), tenant);
          }
        });
  }
  void HandleOwn(Step& step, Call& call);
  // Whether the quotas of the tenant, and the memory of all, allow what the call may keep. `tally`
  // is that of the tenant or, for a group that does not exist, of all tenants; Create then checks.
  absl::Status CheckCall(const Call& call, const Tally& tally) const;

  // Answers a call about a group that does not exist or was closed.
  void HandleWithout(Step& step, Call& call);
  Group* Create(Step& step, const Call& call, const GroupSpec& spec);
  void List(Step& step, const Call& call, const ListGroupsCall& body);
  // Lists the calls that wait in the tenant's own store.
  void DumpNamespace(Step& step, const Call& call);
};

Core::Core(const Limits& limits, int64_t boot, std::shared_ptr<TenantAccounts> accounts,
           std::function<int64_t()> next_receipt)
    : impl_(std::make_unique<Impl>(accounts != nullptr ? std::move(accounts)
                                                       : std::make_shared<TenantAccounts>(
                                                             std::make_shared<MemoryAccount>()))) {
  impl_->shard.limits = limits;
  impl_->shard.boot = boot;
  if (next_receipt != nullptr) impl_->shard.next_receipt = std::move(next_receipt);
}

Core::~Core() = default;

Group* Core::Impl::Create(Step& step, const Call& call, const GroupSpec& spec) {
  if (shard.draining) {
    step.Fail(call.id,
              absl::UnavailableError("the coordinator is draining; no new groups are taken"));
    return nullptr;
  }
  const int64_t group_count = account().count(QuotaKind::kGroups);
  if (group_count >= shard.limits.max_groups) {
    step.Fail(call.id, absl::ResourceExhaustedError(
                           absl::StrCat("the coordinator holds ", group_count,
                                        " groups; max_groups is ", shard.limits.max_groups)));
    return nullptr;
  }
  if (spec.max_members > shard.limits.max_members) {
    step.Fail(call.id, absl::ResourceExhaustedError(absl::StrCat("world size ", spec.max_members,
                                                                 " passes max_members (",
                                                                 shard.limits.max_members, ")")));
    return nullptr;
  }
  const GroupKey& key = call.caller.key;
  const auto* join = std::get_if<JoinCall>(&call.body);
  const std::shared_ptr<Tally> tally = shard.tallies.Of(key.tenant);
  absl::Status room = CheckCount(*tally->account(), QuotaKind::kGroups, shard.limits);
  if (join != nullptr)
    room.Update(CheckCount(*tally->account(), QuotaKind::kMembers, shard.limits));
  room.Update(CheckCall(call, *tally));
  room.Update(
      tally->CheckRoom(MemoryKind::kGroups, Group::Cost(key, spec), shard.limits, Share::kNew));
  if (!room.ok()) {
    step.Fail(call.id, std::move(room));
    return nullptr;
  }
  auto group = std::make_unique<Group>(step, shard, key, spec, join == nullptr ? "" : join->member,
                                       NextGeneration(key));
  // The name's row is the living group's again.
  ForgetClosed(key);
  return groups.emplace(key, std::move(group)).first->second.get();
}

void Core::Impl::HandleWithout(Step& step, Call& call) {
  if (auto* create = std::get_if<CreateGroupCall>(&call.body)) {
    if (Group* group = Create(step, call, create->spec); group != nullptr) {
      step.Answer(call.id, CreateGroupReply{group->generation()});
    }
    return;
  }
  if (auto* join = std::get_if<JoinCall>(&call.body); join != nullptr && join->spec.has_value()) {
    if (Group* group = Create(step, call, *join->spec); group != nullptr) {
      group->Handle(step, std::move(call));
    }
    return;
  }
  auto context = std::make_shared<ErrorContext>();
  context->group = call.caller.key.group;
  std::string text = absl::StrCat("there is no group ", call.caller.key.group);
  if (const auto it = closed.find(call.caller.key); it != closed.end()) {
    absl::StrAppend(&text, "; it was closed ", HowClosed(it->second, step.now()));
    context->cause = it->second.cause;
  }
  step.Fail(call.id, absl::NotFoundError(text), std::move(context));
}

void Core::Impl::List(Step& step, const Call& call, const ListGroupsCall& body) {
  ListGroupsReply reply;
  for (auto it = groups.upper_bound(GroupKey{call.caller.key.tenant, body.after});
       it != groups.end() && it->first.tenant == call.caller.key.tenant &&
       static_cast<int>(reply.groups.size()) < body.page_size;
       ++it) {
    reply.groups.push_back(it->second->Describe(step.now(), false));
  }
  step.Answer(call.id, std::move(reply));
}

absl::Status Core::Impl::CheckCall(const Call& call, const Tally& tally) const {
  if (NeedsWaiterQuota(call)) {
    COHORT_RETURN_IF_ERROR(CheckCount(*tally.account(), QuotaKind::kWaiters, shard.limits));
  }
  const CallCost cost = CostOf(call);
  if (cost.bytes == 0) return absl::OkStatus();
  return tally.CheckRoom(cost.kind, cost.bytes, shard.limits, cost.share);
}

void Core::Impl::HandleOwn(Step& step, Call& call) {
  const std::string tenant = call.caller.key.tenant;
  const auto it = namespaces.find(tenant);
  if (it == namespaces.end() && MayKeep(call)) {
    absl::Status room = shard.tallies.whole().CheckRoom(
        MemoryKind::kNamespaces, Namespace::Cost(call.caller.key), shard.limits, Share::kNew);
    if (!room.ok()) return step.Fail(call.id, std::move(room));
  }
  // A new one without a trace goes when the step ends.
  Namespace& own = it == namespaces.end() ? AddNamespace(step.now(), call.caller.key) : *it->second;
  if (it == namespaces.end()) shard.perhaps_idle.push_back(tenant);
  own.used_at = step.now();
  if (absl::Status status = CheckCall(call, *own.tally); !status.ok()) {
    step.Fail(call.id, std::move(status));
    return Finish(step);
  }
  std::visit(
      [&](auto& body) {
        if constexpr (kIsStoreCall<std::decay_t<decltype(body)>>) {
          own.store.Settle(step, call.caller);
          own.store.Handle(step, call.id, call.caller, call.wait, std::move(body));
        } else {
          step.Fail(call.id, absl::InvalidArgumentError("scope.group is empty"));
        }
      },
      call.body);
  Finish(step);
  ScheduleAging(step.now(), tenant);
}

void Core::Impl::DumpNamespace(Step& step, const Call& call) {
  DumpWaitsReply reply;
  if (const auto own = namespaces.find(call.caller.key.tenant); own != namespaces.end()) {
    const Store& store = own->second->store;
    for (const CallId id : shard.waits.IdsOf(store)) {
      const WaitTable::Entry* const entry = shard.waits.Find(id);
      if (store.IsWatch(id)) continue;
      ++reply.total_count;
      if (reply.calls.size() == kMaxDumped) continue;
      ParkedCall& parked = reply.calls.emplace_back();
      store.Explain(id, parked);
      parked.age = step.now() - entry->since;
      parked.remaining = entry->deadline - step.now();
    }
  }
  step.Answer(call.id, std::move(reply));
}

void Core::Handle(Instant now, Call call, Effects& effects) {
  Step step(now, effects);
  Impl& impl = *impl_;
  const Publication publication(impl.shard);
  // Timers and waits that are due come before this call.
  impl.shard.timers.Run(step);
  impl.shard.waits.Run(step);
  impl.Finish(step);
  if (const auto* list = std::get_if<ListGroupsCall>(&call.body)) {
    impl.List(step, call, *list);
    return;
  }
  if (call.caller.key.group.empty() && std::holds_alternative<DumpWaitsCall>(call.body)) {
    impl.DumpNamespace(step, call);
    return;
  }
  const ServiceBytes service_bytes(impl.shard.waits, call.service_bytes);
  if (call.caller.key.group.empty()) {
    impl.HandleOwn(step, call);
    return;
  }
  const auto it = impl.groups.find(call.caller.key);
  Group* const group = it == impl.groups.end() ? nullptr : it->second.get();
  const Tally& tally = group == nullptr ? impl.shard.tallies.whole() : group->tally();
  if (absl::Status status = impl.CheckCall(call, tally); !status.ok()) {
    step.Fail(call.id, std::move(status));
  } else if (group == nullptr) {
    impl.HandleWithout(step, call);
  } else {
    group->Handle(step, std::move(call));
  }
  impl.Finish(step);
}

void Core::Cancel(Instant now, CallId id, Effects& effects) {
  Step step(now, effects);
  const Publication publication(impl_->shard);
  impl_->shard.waits.Cancel(step, id);
  impl_->Finish(step);
}

void Core::Tick(Instant now, Effects& effects) {
  Step step(now, effects);
  const Publication publication(impl_->shard);
  impl_->shard.timers.Run(step);
  impl_->shard.waits.Run(step);
  impl_->Finish(step);
}

void Core::Resume(Instant now, absl::Duration asleep) {
  Shard& shard = impl_->shard;
  shard.waits.Advance(asleep);
  shard.resumed_until = now + std::min(asleep, kReconnectTime);
}

Instant Core::NextTick() const {
  return std::min(impl_->shard.timers.Next(), impl_->shard.waits.Next());
}

void Core::SetDraining(Instant now, bool draining, Effects& effects) {
  Step step(now, effects);
  const Publication publication(impl_->shard);
  const bool was_draining = impl_->shard.draining;
  impl_->shard.draining = draining;
  if (!draining || was_draining) return;
  for (auto& [key, group] : impl_->groups) group->NotifyOfDraining(step);
  impl_->Finish(step);
}

void Core::ReleaseAll(Instant now, Effects& effects) {
  Step step(now, effects);
  const Publication publication(impl_->shard);
  for (CallId id : impl_->shard.waits.Ids()) {
    if (impl_->shard.waits.Find(id) == nullptr) continue;
    impl_->shard.waits.Cancel(step, id);
    step.Fail(id, absl::UnavailableError(
                      "the coordinator is draining; repeat with the same operation id"));
  }
  impl_->Finish(step);
}

void Core::SetLimits(const Limits& limits) { impl_->shard.limits = limits; }

CoreStats Core::Stats() const {
  CoreStats stats = impl_->totals;
  stats.group_count = static_cast<int64_t>(impl_->groups.size());
  for (const auto& [key, group] : impl_->groups) {
    stats.member_count += group->live_count();
    stats.barriers_released += group->released_barriers();
    stats.members_lost += group->members_lost();
    stats.objects_expired += group->objects_expired();
  }
  stats.waiter_count = static_cast<int64_t>(impl_->shard.waits.size());
  stats.bytes_held = account().value_bytes();
  return stats;
}

const MemoryAccount& Core::account() const { return impl_->account(); }

std::vector<GroupKey> Core::GroupKeys(const std::string& tenant) const {
  std::vector<GroupKey> keys;
  const auto& groups = impl_->groups;
  for (auto it = groups.lower_bound(GroupKey{tenant, ""});
       it != groups.end() && it->first.tenant == tenant; ++it) {
    keys.push_back(it->first);
  }
  return keys;
}

void Core::Restore(Instant now, const std::vector<Record>& rows) {
  for (const Record& row : rows) {
    if (row.kind == RecordKind::kGroup) RestoreRow(now, row);
  }
  for (const Record& row : rows) {
    if (row.kind != RecordKind::kGroup) RestoreRow(now, row);
  }
  FinishRestore(now);
}

void Core::RestoreRow(Instant now, const Record& row) {
  Impl& impl = *impl_;
  const Publication publication(impl.shard);
  if (!row.value.has_value()) return;
  if (row.kind == RecordKind::kGroup) {
    const auto* record = std::get_if<GroupRecord>(&*row.value);
    if (record == nullptr) return;
    if (record->state == GroupState::kClosed) {
      Impl::Closed group{record->generation, record->cause, /*in_this_boot=*/false};
      group.cause.at = now;
      impl.RememberClosed(nullptr, row.key, std::move(group));
    } else {
      impl.groups[row.key] = std::make_unique<Group>(impl.shard, row.key, *record);
    }
    return;
  }
  if (!row.key.group.empty()) {
    auto it = impl.groups.find(row.key);
    if (it != impl.groups.end()) it->second->Restore(now, row);
    return;
  }
  auto it = impl.namespaces.find(row.key.tenant);
  Namespace& own = it != impl.namespaces.end() ? *it->second : impl.AddNamespace(now, row.key);
  if (const auto* key = std::get_if<KeyRecord>(&*row.value)) own.store.Restore(now, *key);
  if (const auto* item = std::get_if<QueueItemRecord>(&*row.value)) own.store.Restore(now, *item);
  if (const auto* op = std::get_if<OperationRecord>(&*row.value)) own.operations.Restore(*op, now);
}

void Core::FinishRestore(Instant now) {
  Impl& impl = *impl_;
  const Publication publication(impl.shard);
  for (auto& [tenant, own] : impl.namespaces) impl.ScheduleAging(now, tenant);
  for (auto& [key, group] : impl.groups) group->FinishRestore(now);
  // When the memory of closed names was full, some were forgotten; one of the kept rows has their
  // generation, even if its name came back meanwhile.
  const int64_t names = impl.account().closed_name_count.load(std::memory_order_relaxed) +
                        impl.account().count(QuotaKind::kGroups);
  if (names >= impl.shard.limits.max_closed_names) {
    for (const auto& [key, known] : impl.closed) {
      impl.closed_floor = std::max(impl.closed_floor, known.generation);
    }
    for (const auto& [key, group] : impl.groups) {
      impl.closed_floor = std::max(impl.closed_floor, group->generation());
    }
  }
}

}  // namespace cohort::coordinator
