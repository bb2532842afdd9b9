#include "coordinator/core/core.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/group.h"
#include "coordinator/core/shard.h"
#include "coordinator/core/step.h"

namespace cohort::coordinator {
namespace {

// Enough to know why a group was closed: the names of many are remembered.
constexpr size_t kMaxClosedDetailBytes = 256;

// The tenant's own store, which no group owns.
struct Namespace {
  Namespace(Shard& shard, const GroupKey& key)
      : ledger(std::make_shared<ByteLedger>(shard.ledger)),
        last_number(shard.FirstNumber()),
        store(shard, key, operations, ledger, &last_number) {}
  std::shared_ptr<ByteLedger> ledger;
  int64_t last_number;
  OperationWindow operations;
  Store store;
};

template <typename T>
constexpr bool kIsStoreCall =
    std::is_same_v<T, PutCall> || std::is_same_v<T, GetCall> || std::is_same_v<T, RangeCall> ||
    std::is_same_v<T, DeleteCall> || std::is_same_v<T, AddCall> || std::is_same_v<T, AppendCall> ||
    std::is_same_v<T, QueuePushCall> || std::is_same_v<T, QueuePopCall> ||
    std::is_same_v<T, WatchKeysCall>;

}  // namespace

struct Core::Impl {
  Shard shard;
  std::map<GroupKey, std::unique_ptr<Group>> groups;
  std::map<std::string, std::unique_ptr<Namespace>> namespaces;  // by tenant
  // Generations of closed groups, so that a name that comes back goes on counting, and what ended
  // them. Not of those that came back.
  struct Closed {
    int64_t generation = 0;
    Cause cause;
    bool in_this_boot = true;  // else its time is not known
    int64_t order = 0;
  };
  std::map<GroupKey, Closed> closed;
  std::map<int64_t, GroupKey> closed_order;
  int64_t last_order = 0;
  int64_t closed_floor = 0;  // of those no longer remembered one by one
  CoreStats totals;          // of groups that were closed

  void NoteClosed(Step& step, const GroupKey& key, const Group& group) {
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
    closed[key] = std::move(group);
    closed_order[last_order] = key;
    while (static_cast<int64_t>(closed.size()) >
           std::max<int64_t>(shard.limits.max_closed_names, 1)) {
      // Forgotten names may not go down either: their generation passes to the next oldest, whose
      // row keeps it.
      const GroupKey oldest = closed_order.begin()->second;
      closed_floor = std::max(closed_floor, closed.at(oldest).generation);
      ForgetClosed(oldest);
      const GroupKey& heir = closed_order.begin()->second;
      Closed& inherits = closed.at(heir);
      inherits.generation = std::max(inherits.generation, closed_floor);
      if (step == nullptr) continue;
      step->Erase(oldest, RecordKind::kGroup, "");
      WriteClosed(*step, heir, inherits);
    }
  }

  void ForgetClosed(const GroupKey& key) {
    auto it = closed.find(key);
    if (it == closed.end()) return;
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

  // What ends each step: watchers hear what happened, and the groups that have ended are taken off.
  void Finish(Step& step) {
    for (Group* group : shard.telling) group->TellWatchers(step);
    shard.telling.clear();
    while (!shard.closed.empty()) {
      auto it = groups.find(shard.closed.back());
      shard.closed.pop_back();
      NoteClosed(step, it->first, *it->second);
      groups.erase(it);
    }
  }

  // A call about a group that does not exist (any more).
  void HandleWithout(Step& step, Call& call);
  Group* Create(Step& step, const Call& call, const GroupSpec& spec);
  void List(Step& step, const Call& call, const ListGroupsCall& body);
};

Core::Core(const Limits& limits, int64_t boot, std::shared_ptr<ByteLedger> ledger)
    : impl_(std::make_unique<Impl>()) {
  impl_->shard.limits = limits;
  impl_->shard.boot = boot;
  impl_->shard.ledger = std::make_shared<ByteLedger>(std::move(ledger));
}

Core::~Core() = default;

Group* Core::Impl::Create(Step& step, const Call& call, const GroupSpec& spec) {
  if (shard.draining) {
    step.Fail(call.id,
              absl::UnavailableError("the coordinator is draining; no new groups are taken"));
    return nullptr;
  }
  if (static_cast<int64_t>(groups.size()) >= shard.limits.max_groups) {
    step.Fail(call.id, absl::ResourceExhaustedError(absl::StrCat("this shard holds ", groups.size(),
                                                                 " groups; max_groups is ",
                                                                 shard.limits.max_groups)));
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

void Core::Handle(Instant now, Call call, Effects& effects) {
  Step step(now, effects);
  Impl& impl = *impl_;
  // What is due happened before this call.
  impl.shard.timers.Run(step);
  impl.shard.waits.Run(step);
  impl.Finish(step);
  if (const auto* list = std::get_if<ListGroupsCall>(&call.body)) {
    impl.List(step, call, *list);
    return;
  }
  if (call.caller.key.group.empty()) {
    auto& own = impl.namespaces[call.caller.key.tenant];
    if (own == nullptr) own = std::make_unique<Namespace>(impl.shard, call.caller.key);
    std::visit(
        [&](auto& body) {
          if constexpr (kIsStoreCall<std::decay_t<decltype(body)>>) {
            for (int64_t receipt : call.caller.acknowledged) own->store.Acknowledge(step, receipt);
            own->store.Handle(step, call.id, call.caller, call.wait, std::move(body));
          } else {
            step.Fail(call.id, absl::InvalidArgumentError("scope.group is empty"));
          }
        },
        call.body);
    return;
  }
  auto it = impl.groups.find(call.caller.key);
  if (it == impl.groups.end()) {
    impl.HandleWithout(step, call);
  } else {
    it->second->Handle(step, std::move(call));
  }
  impl.Finish(step);
}

void Core::Cancel(Instant now, CallId id, Effects& effects) {
  Step step(now, effects);
  impl_->shard.waits.Cancel(step, id);
  impl_->Finish(step);
}

void Core::Tick(Instant now, Effects& effects) {
  Step step(now, effects);
  impl_->shard.timers.Run(step);
  impl_->shard.waits.Run(step);
  impl_->Finish(step);
}

Instant Core::NextTick() const {
  return std::min(impl_->shard.timers.Next(), impl_->shard.waits.Next());
}

void Core::SetDraining(Instant now, bool draining, Effects& effects) {
  Step step(now, effects);
  const bool told = impl_->shard.draining;
  impl_->shard.draining = draining;
  if (!draining || told) return;
  for (auto& [key, group] : impl_->groups) group->TellDraining(step);
  impl_->Finish(step);
}

void Core::ReleaseAll(Instant now, Effects& effects) {
  Step step(now, effects);
  for (CallId id : impl_->shard.waits.Ids()) {
    if (impl_->shard.waits.Find(id) == nullptr) continue;
    impl_->shard.waits.Cancel(step, id);
    step.Fail(id, absl::UnavailableError(
                      "the coordinator is draining; repeat with the same operation id"));
  }
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
  stats.bytes_held = impl_->shard.ledger->held();
  return stats;
}

std::vector<GroupKey> Core::GroupKeys() const {
  std::vector<GroupKey> keys;
  keys.reserve(impl_->groups.size());
  for (const auto& [key, group] : impl_->groups) keys.push_back(key);
  return keys;
}

void Core::Restore(Instant now, const std::vector<Record>& rows) {
  Impl& impl = *impl_;
  for (const Record& row : rows) {
    if (row.kind != RecordKind::kGroup || !row.value.has_value()) continue;
    const auto* record = std::get_if<GroupRecord>(&*row.value);
    if (record == nullptr) continue;
    if (record->state == GroupState::kClosed) {
      Impl::Closed group{record->generation, record->cause, /*in_this_boot=*/false};
      group.cause.at = now;
      impl.RememberClosed(nullptr, row.key, std::move(group));
    } else {
      impl.groups[row.key] = std::make_unique<Group>(impl.shard, row.key, *record);
    }
  }
  for (const Record& row : rows) {
    if (row.kind == RecordKind::kGroup || !row.value.has_value()) continue;
    if (!row.key.group.empty()) {
      auto it = impl.groups.find(row.key);
      if (it != impl.groups.end()) it->second->Restore(now, row);
      continue;
    }
    auto& own = impl.namespaces[row.key.tenant];
    if (own == nullptr) own = std::make_unique<Namespace>(impl.shard, row.key);
    if (const auto* key = std::get_if<KeyRecord>(&*row.value)) own->store.Restore(now, *key);
    if (const auto* item = std::get_if<QueueItemRecord>(&*row.value))
      own->store.Restore(now, *item);
    if (const auto* op = std::get_if<OperationRecord>(&*row.value))
      own->operations.Restore(*op, now);
  }
  for (auto& [key, group] : impl.groups) group->FinishRestore(now);
  // When the memory of closed names was full, some were forgotten; one of the kept rows has their
  // generation, even if its name came back meanwhile.
  if (static_cast<int64_t>(impl.closed.size() + impl.groups.size()) >=
      impl.shard.limits.max_closed_names) {
    for (const auto& [key, known] : impl.closed) {
      impl.closed_floor = std::max(impl.closed_floor, known.generation);
    }
    for (const auto& [key, group] : impl.groups) {
      impl.closed_floor = std::max(impl.closed_floor, group->generation());
    }
  }
}

}  // namespace cohort::coordinator
