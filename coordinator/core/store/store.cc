// Expiry, limits and parked calls of a store. The calls are in store_keys.cc, store_queues.cc and
// store_watch.cc.
#include "coordinator/core/store/store.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/text/printable.h"
#include "coordinator/core/store/store_answers.h"

namespace cohort::coordinator {
namespace {

// The memory of an answer that is kept for repeats (first_answers.h).
constexpr int64_t kAnswerCost = 512;

}  // namespace

// The namespace takes a number when it begins, so that its first revision is not 0: a watch from
// revision 0 begins with the present.
Store::Store(Shard& shard, GroupKey key, std::shared_ptr<Tally> tally, FirstAnswers& operations,
             std::shared_ptr<ByteLedger> ledger, int64_t* last_number)
    : shard_(shard),
      key_(std::move(key)),
      tally_(std::move(tally)),
      operations_(operations),
      ledger_(std::move(ledger)),
      last_number_(last_number),
      completed_pops_(*tally_),
      history_(NextNumber()),
      keys_charge_(*tally_, MemoryKind::kKeys),
      items_charge_(*tally_, MemoryKind::kQueues),
      events_charge_(*tally_, MemoryKind::kKeyEvents),
      parked_charge_(*tally_, MemoryKind::kCalls) {}

Store::~Store() {
  for (const auto& [id, parked] : parked_) shard_.waits.Done(id);
  shard_.timers.Cancel(timer_);
}

void Store::CatchUp(Step& step) {
  while (!due_.empty() && due_.begin()->at <= step.now()) {
    const Due due = *due_.begin();
    if (due.sequence != 0) {
      ExpireItem(step, due.name, due.sequence);
    } else {
      DeleteKey(step, keys_.find(due.name), Deletion::kExpired);
    }
  }
  while (!history_.empty() && history_.oldest().event.at + kHistoryAge <= step.now()) {
    DropOldestEvent();
  }
}

void Store::FinishEntry(Step& step) {
  AnswerWoken(step);
  ArmTimer();
  MarkIdle();
}

void Store::MarkIdle() {
  if (key_.group.empty() && idle()) shard_.perhaps_idle.push_back(key_.tenant);
}

void Store::ArmTimer() {
  Instant next = due_.empty() ? absl::InfiniteFuture() : due_.begin()->at;
  if (!history_.empty()) next = std::min(next, history_.oldest().event.at + kHistoryAge);
  if (next == timer_at_) return;
  shard_.timers.Cancel(timer_);
  timer_at_ = next;
  if (next == absl::InfiniteFuture()) return;
  timer_ = shard_.timers.Schedule(next, [this](Step& step) {
    timer_ = 0;
    timer_at_ = absl::InfiniteFuture();
    const EntryScope scope(*this, step);
  });
}

absl::Status Store::CheckValue(MemoryKind kind, int64_t size, int64_t old_size, int64_t around) {
  const absl::Status allowed = CheckValueSize(size);
  return allowed.ok() ? CheckRoom(kind, 1, size, old_size, around) : allowed;
}

absl::Status Store::CheckValueSize(int64_t size) const {
  if (size <= shard_.limits.max_value_bytes) return absl::OkStatus();
  return OverLimit("max_value_bytes", shard_.limits.max_value_bytes,
                   absl::StrFormat("the value would have %d bytes", size));
}

absl::Status Store::CheckRoom(MemoryKind kind, int64_t count, int64_t size, int64_t old_size,
                              int64_t around) {
  const Limits& limits = shard_.limits;
  // Each new value has an event, and all together have one first answer.
  around += count * (ByteLedger::kValueCost + static_cast<int64_t>(sizeof(Event))) + kAnswerCost;
  const auto fits = [&](int64_t more) {
    return ledger_->held() + more <= limits.max_group_bytes_held &&
           tally_->HasRoom(more + around, limits, Share::kNew);
  };
  if (fits(size)) return absl::OkStatus();
  // If no event has the old value, replacing it frees it, and it does not count any more.
  while (!history_.empty()) DropOldestEvent();
  if (fits(size - old_size)) return absl::OkStatus();
  if (ledger_->held() + size - old_size > limits.max_group_bytes_held) {
    return OverLimit(
        "max_group_bytes_held", limits.max_group_bytes_held,
        absl::StrFormat("%d bytes are held and the %s %d", ledger_->held(),
                        count == 1 ? "value has" : "values have", size));
  }
  return tally_->CheckRoom(kind, size - old_size + around, limits, Share::kNew);
}

void Store::Park(Step& step, CallId id, const Caller& caller, absl::Duration wait,
                 std::variant<ParkedGet, ParkedPop, ParkedWatch> what) {
  if (const auto* get = std::get_if<ParkedGet>(&what)) {
    AddWaitingGet(id, *get);
  } else if (const auto* pop = std::get_if<ParkedPop>(&what)) {
    queues_[pop->queue].consumers.emplace(pop->arrival, id);
    if (!pop->operation.empty()) pops_by_operation_.insert({pop->operation, id});
  } else if (const auto* watch = std::get_if<ParkedWatch>(&what)) {
    watches_[watch->prefix.size()][watch->prefix].insert(id);
    ++watch_count_;
  }
  const auto parked = parked_.emplace(id, Parked{caller.session, std::move(what)}).first;
  parked_charge_.Add(CostOfParked(parked->second));
  shard_.waits.Park(id, this, *tally_, step.now(), step.now() + wait);
}

Store::Parked Store::Unpark(ParkedCalls::iterator call) {
  const CallId id = call->first;
  Parked parked = std::move(call->second);
  parked_.erase(call);
  parked_charge_.Add(-CostOfParked(parked));
  shard_.waits.Done(id);
  if (const auto* get = std::get_if<ParkedGet>(&parked.what)) {
    RemoveWaitingGet(id, *get);
  } else if (const auto* pop = std::get_if<ParkedPop>(&parked.what)) {
    if (!pop->operation.empty()) pops_by_operation_.erase({pop->operation, id});
    auto queue = queues_.find(pop->queue);
    queue->second.consumers.erase(pop->arrival);
    DropIfEmpty(queue);
  } else if (const auto* watch = std::get_if<ParkedWatch>(&parked.what)) {
    auto length = watches_.find(watch->prefix.size());
    auto prefix = length->second.find(watch->prefix);
    prefix->second.erase(id);
    if (prefix->second.empty()) length->second.erase(prefix);
    if (length->second.empty()) watches_.erase(length);
    woken_.erase(id);
    --watch_count_;
  }
  MarkIdle();
  return parked;
}

int64_t Store::CostOfParked(const Parked& parked) {
  if (const auto* get = std::get_if<ParkedGet>(&parked.what)) {
    // It may be the only one under its name, and stand there twice.
    return CostOf(get->keys) + CostOf(get->queues) + CostOf(get->client) +
           (get->or_queue ? 2 : 1) * SlotCost<GetsByName::value_type>();
  }
  if (const auto* pop = std::get_if<ParkedPop>(&parked.what)) {
    // It may be the only one of its queue.
    return NodeCost<std::pair<std::string, Queue>>() + 2 * CostOf(pop->queue);
  }
  return 2 * CostOf(std::get<ParkedWatch>(parked.what).prefix);
}

void Store::Forget(Step&, CallId id) {
  auto it = parked_.find(id);
  if (it != parked_.end()) Unpark(it);
}

void Store::TimeOut(Step& step, CallId id) {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  const Parked parked = Unpark(it);
  // A watch has seen everything until here (S4), but not the expirations of this step.
  const int64_t seen = revision();
  const EntryScope scope(*this, step);
  if (const auto* get = std::get_if<ParkedGet>(&parked.what)) {
    AnswerGet(step, id, *get);
  } else if (const auto* pop = std::get_if<ParkedPop>(&parked.what)) {
    step.Answer(id, QueuePopReply{});
    EndPop(step, pop->operation);
  } else if (const auto* watch = std::get_if<ParkedWatch>(&parked.what)) {
    AnswerWatch(step, id, watch->prefix, seen);
  }
}

void Store::FailIf(Step& step, const absl::Status& status,
                   std::shared_ptr<const ErrorContext> context, const Id128* session) {
  for (auto it = parked_.begin(); it != parked_.end();) {
    auto call = it++;
    if (session != nullptr && call->second.session != *session) continue;
    step.Fail(call->first, status, context);
    Unpark(call);
  }
}

void Store::FailSession(Step& step, const Id128& session, const absl::Status& status,
                        std::shared_ptr<const ErrorContext> context) {
  if (!session.empty()) FailIf(step, status, std::move(context), &session);
}

void Store::FailAll(Step& step, const absl::Status& status,
                    std::shared_ptr<const ErrorContext> context) {
  FailIf(step, status, std::move(context), nullptr);
}

bool Store::idle() const {
  return keys_.empty() && queues_.empty() && parked_.empty() && history_.empty();
}

void Store::Explain(CallId id, ParkedCall& parked) const {
  auto it = parked_.find(id);
  if (it == parked_.end()) return;
  parked.group = key_.group;
  if (const auto* get = std::get_if<ParkedGet>(&it->second.what)) {
    parked.member = get->client;
    parked.operation =
        absl::StrCat("get ", get->on_key() ? "" : "queue ", Printable(get->name()));
    if (get->size() > 1) {
      absl::StrAppend(&parked.operation, " (one of ", get->size(),
                      get->queues.empty() ? " keys)" : " keys and queues)");
    }
  } else if (const auto* pop = std::get_if<ParkedPop>(&it->second.what)) {
    parked.operation = absl::StrCat("queue_pop ", pop->queue);
  } else if (const auto* watch = std::get_if<ParkedWatch>(&it->second.what)) {
    parked.operation = absl::StrCat("watch ", Printable(watch->prefix));
  }
}

bool Store::IsWatch(CallId id) const {
  auto it = parked_.find(id);
  return it != parked_.end() && std::holds_alternative<ParkedWatch>(it->second.what);
}

Id128 Store::SessionOf(CallId id) const {
  auto it = parked_.find(id);
  return it == parked_.end() ? Id128{} : it->second.session;
}

}  // namespace cohort::coordinator
