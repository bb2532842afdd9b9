// Keys and counters. One file, though long: all calls on keys share their checks and their costs.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/memory/no_memory.h"
#include "base/text/printable.h"
#include "coordinator/core/store/store.h"
#include "coordinator/core/store/store_answers.h"

namespace cohort::coordinator {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1000;
// The memory of all keys on one page.
constexpr int64_t kMostListedBytes = int64_t{32} << 20;

// SimpleAtoi accepts spaces; a counter has only digits and a sign.
bool ParseCounter(const std::string& text, int64_t* value) {
  if (text.empty() || absl::ascii_isspace(text.front()) || absl::ascii_isspace(text.back())) {
    return false;
  }
  return absl::SimpleAtoi(text, value);
}

}  // namespace

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, PutCall&& call) {
  const EntryScope scope(*this, step);
  auto it = keys_.find(call.key);
  const std::string* unmet = FirstUnmet(call, it);
  const auto refused = [&] {
    PutReply reply{false, revision()};
    // A repeat is refused also when its conditions hold by now.
    const auto differs = unmet == nullptr || *unmet == call.key ? it : keys_.find(*unmet);
    if (differs != keys_.end()) reply.current = Show(step.now(), differs->first, differs->second);
    return reply;
  };
  const uint64_t asked = FingerprintOf(caller, call);
  absl::Status same = operations_.CheckSame<PutReply>(caller.operation_id, asked, call);
  if (!same.ok()) return step.Fail(id, std::move(same));
  if (const ReplyBody* first = operations_.Find(caller.operation_id); first != nullptr) {
    return std::get<PutReply>(*first).written ? step.Answer(id, *first)
                                              : step.Answer(id, refused());
  }

  if (call.bind_to_session && caller.session.empty()) {
    return step.Fail(id, absl::FailedPreconditionError("bind_to_session needs a session"));
  }
  if (unmet != nullptr) return AnswerFirst(step, id, caller, asked, refused());
  const absl::Status allowed = CheckPut(call, it);
  if (!allowed.ok()) return step.Fail(id, allowed);

  const auto write = [&](const std::string& key, std::string&& value) {
    Key entry;
    entry.value = Payload(std::move(value), ledger_, MemoryKind::kKeys);
    entry.expiration = call.expiration;
    if (call.expiration.has_value()) entry.expires_at = step.now() + *call.expiration;
    if (call.bind_to_session) entry.session = caller.session;
    return WriteKey(step, key, std::move(entry));
  };
  int64_t written = write(call.key, std::move(call.value));
  for (PutEntry& entry : call.more) written = write(entry.key, std::move(entry.value));
  WakeKey(step, call.key);
  for (const PutEntry& entry : call.more) WakeKey(step, entry.key);
  AnswerFirst(step, id, caller, asked, PutReply{true, written});
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait,
                   GetCall&& call) {
  const EntryScope scope(*this, step);
  ParkedGet get{std::move(call.keys), std::move(call.queues), call.newer_than,       call.or_queue,
                call.keys_only,       call.any_size,          std::move(call.client)};
  get.blocked_on = FirstUnsatisfied(get, 0);
  if (call.wait && wait > absl::ZeroDuration() && get.blocked_on < get.size()) {
    Park(step, id, caller, wait, std::move(get));
  } else {
    AnswerGet(step, id, get);
  }
}

void Store::Handle(Step& step, CallId id, const Caller&, absl::Duration, RangeCall&& call) {
  const EntryScope scope(*this, step);
  const size_t page = call.one_page         ? keys_.size()
                      : call.page_size <= 0 ? kDefaultPage
                                            : std::min(call.page_size, kMaxPage);
  RangeReply reply;
  reply.revision = revision();
  int64_t bytes = 0;
  int64_t listed = 0;
  bool more = false;
  auto it = keys_.lower_bound(call.prefix);
  if (call.prefix.empty()) {
    // A listing of all keys, the usual case, need not visit every key for each page.
    reply.count = key_count();
    it = call.count_only ? keys_.end() : keys_.upper_bound(call.after);
    if (call.after.empty() && !call.count_only) it = keys_.begin();
  }
  for (; it != keys_.end() && absl::StartsWith(it->first, call.prefix); ++it) {
    if (!call.prefix.empty()) ++reply.count;
    const bool on_page = !call.count_only && (call.after.empty() || it->first > call.after);
    if (!on_page || more) continue;
    bytes += call.keys_only ? 0 : it->second.value.size();
    more = reply.values.size() == page ||
           (bytes > shard_.limits.max_inline_bytes && !reply.values.empty());
    if (more) {
      if (call.prefix.empty()) break;
      continue;
    }
    if (call.one_page) {
      listed += static_cast<int64_t>(sizeof(KeyValue) + it->first.size());
      if (listed > kMostListedBytes) {
        return step.Fail(id, OverLimit("the memory of a list", kMostListedBytes,
                                       absl::StrFormat("%d keys; list them page by page",
                                                       key_count())));
      }
    }
    reply.values.push_back(Show(step.now(), it->first, it->second));
    if (call.keys_only) reply.values.back().value.reset();
  }
  if (more) reply.next = reply.values.back().key;
  step.Answer(id, std::move(reply));
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, DeleteCall&& call) {
  const EntryScope scope(*this, step);
  const uint64_t asked = FingerprintOf(caller, call);
  if (operations_.Repeated<DeleteReply>(step, id, caller.operation_id, asked, call)) return;
  DeleteReply reply;
  auto it = call.prefix ? keys_.lower_bound(call.key) : keys_.find(call.key);
  while (it != keys_.end() && absl::StartsWith(it->first, call.key)) {
    it = DeleteKey(step, it, Deletion::kAsked);
    ++reply.deleted_count;
    if (!call.prefix) break;
  }
  if (call.queues) DropQueues(step, call.key);
  reply.revision = revision();
  // Kept even if no key was deleted: a repeat must not delete keys that were put since.
  AnswerFirst(step, id, caller, asked, reply);
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, AddCall&& call) {
  const EntryScope scope(*this, step);
  const uint64_t asked = FingerprintOf(caller, call);
  if (operations_.Repeated<AddReply>(step, id, caller.operation_id, asked, call)) return;
  auto it = keys_.find(call.key);
  int64_t value = 0;
  if (it != keys_.end() && !ParseCounter(it->second.value.bytes(), &value)) {
    return step.Fail(
        id, absl::FailedPreconditionError(absl::StrCat("the value of key ", Printable(call.key),
                                                       " is not a decimal integer")));
  }
  if (__builtin_add_overflow(value, call.delta, &value)) {
    return step.Fail(
        id, absl::OutOfRangeError(absl::StrCat("adding ", call.delta, " to key ",
                                               Printable(call.key), " overflows 64 bits")));
  }
  std::string text = absl::StrCat(value);
  const absl::Status allowed = CheckKey(call.key, it, static_cast<int64_t>(text.size()));
  if (!allowed.ok()) return step.Fail(id, allowed);
  Key entry = it == keys_.end() ? Key{} : it->second;
  entry.value = Payload(std::move(text), ledger_, MemoryKind::kKeys);
  const int64_t written = WriteKey(step, call.key, std::move(entry));
  WakeKey(step, call.key);
  AnswerFirst(step, id, caller, asked, AddReply{value, written});
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, AppendCall&& call) {
  const EntryScope scope(*this, step);
  const uint64_t asked = FingerprintOf(caller, call);
  if (operations_.Repeated<AppendReply>(step, id, caller.operation_id, asked, call)) return;
  auto it = keys_.find(call.key);
  const int64_t old_size = it == keys_.end() ? 0 : it->second.value.size();
  const int64_t size = old_size + static_cast<int64_t>(call.value.size());
  const absl::Status allowed = CheckKey(call.key, it, size);
  if (!allowed.ok()) return step.Fail(id, allowed);
  Key entry = it == keys_.end() ? Key{} : it->second;
  const absl::Status joined = WithMemory("cohort.v1.StoreService/Append", "a value", size, [&] {
    entry.value =
        Payload(absl::StrCat(entry.value.bytes(), call.value), ledger_, MemoryKind::kKeys);
    return absl::OkStatus();
  });
  if (!joined.ok()) return step.Fail(id, joined);
  const int64_t written = WriteKey(step, call.key, std::move(entry));
  WakeKey(step, call.key);
  AnswerFirst(step, id, caller, asked, AppendReply{size, written});
}

void Store::EndSession(Step& step, const Id128& session) {
  const EntryScope scope(*this, step);
  auto bound = keys_of_session_.find(session);
  if (bound == keys_of_session_.end()) return;
  const absl::btree_set<std::string> keys = bound->second;
  for (const std::string& key : keys) DeleteKey(step, keys_.find(key), Deletion::kExpired);
}

int64_t Store::WriteKey(Step& step, const std::string& key, Key entry) {
  entry.revision = NextNumber();
  auto [it, is_new] = keys_.try_emplace(key);
  if (!is_new) Unindex(key, it->second);
  entry.created_revision = is_new ? entry.revision : it->second.created_revision;
  it->second = entry;
  Index(key, entry);
  if (step.keeps_records()) {
    step.Write(key_, RecordKind::kKey, key,
               KeyRecord{key, entry.value, entry.revision, entry.created_revision, entry.expiration,
                         entry.session});
  }
  Emit(entry.revision, step.now(),
       Event{key, entry.value, entry.created_revision, entry.expires_at});
  return entry.revision;
}

Store::Keys::iterator Store::DeleteKey(Step& step, Keys::iterator it, Deletion why) {
  const std::string key = it->first;
  Unindex(key, it->second);
  Event event{key, Payload(), it->second.created_revision};
  event.deleted = true;
  event.expired = why == Deletion::kExpired;
  auto next = keys_.erase(it);
  step.Erase(key_, RecordKind::kKey, key);
  Emit(NextNumber(), step.now(), std::move(event));
  return next;
}

absl::Status Store::CheckKey(const std::string& key, Keys::const_iterator it, int64_t size) {
  if (it != keys_.end()) {
    return CheckValue(MemoryKind::kKeys, size, it->second.value.size(), CostOf(key));
  }
  const absl::Status allowed = CheckKeyCount(1);
  return allowed.ok() ? CheckValue(MemoryKind::kKeys, size, 0, CostOfNewKey(key)) : allowed;
}

absl::Status Store::CheckKeyCount(int64_t more) const {
  if (key_count() + more <= shard_.limits.max_keys) return absl::OkStatus();
  return OverLimit("max_keys", shard_.limits.max_keys,
                   more == 1 ? absl::StrFormat("the namespace has %d keys", key_count())
                             : absl::StrFormat("the namespace has %d keys and the put brings %d new ones",
                                               key_count(), more));
}

int64_t Store::CostOfNewKey(const std::string& key) {
  // Indexed by time and session, perhaps.
  return SlotCost<std::pair<std::string, Key>>() + SlotCost<Due>() + SlotCost<std::string>() +
         4 * CostOf(key);
}

absl::Status Store::CheckPut(const PutCall& call, Keys::const_iterator it) {
  const int64_t first_size = static_cast<int64_t>(call.value.size());
  if (call.more.empty()) return CheckKey(call.key, it, first_size);
  int64_t new_keys = 0;
  int64_t size = 0;
  int64_t old_size = 0;
  int64_t around = 0;
  const auto count = [&](const std::string& key, Keys::const_iterator at, int64_t value_size) {
    size += value_size;
    if (at == keys_.end()) {
      ++new_keys;
      around += CostOfNewKey(key);
    } else {
      old_size += at->second.value.size();
      around += CostOf(key);
    }
    return CheckValueSize(value_size);
  };
  absl::Status allowed = count(call.key, it, first_size);
  for (auto entry = call.more.begin(); allowed.ok() && entry != call.more.end(); ++entry) {
    allowed = count(entry->key, keys_.find(entry->key), static_cast<int64_t>(entry->value.size()));
  }
  if (allowed.ok() && new_keys > 0) allowed = CheckKeyCount(new_keys);
  if (!allowed.ok()) return allowed;
  return CheckRoom(MemoryKind::kKeys, 1 + static_cast<int64_t>(call.more.size()), size, old_size,
                   around);
}

const std::string* Store::FirstUnmet(const PutCall& call, Keys::const_iterator it) const {
  const auto holds = [this](const auto& put, Keys::const_iterator at) {
    const bool absent = at == keys_.end();
    if (put.expected_revision.has_value() &&
        *put.expected_revision != (absent ? 0 : at->second.revision)) {
      return false;
    }
    if (!put.expected_value.has_value()) return true;
    return absent ? put.expected_value->empty() : at->second.value.bytes() == *put.expected_value;
  };
  if (!holds(call, it)) return &call.key;
  for (const PutEntry& entry : call.more) {
    const bool conditional =
        entry.expected_revision.has_value() || entry.expected_value.has_value();
    if (conditional && !holds(entry, keys_.find(entry.key))) return &entry.key;
  }
  return nullptr;
}

int64_t Store::CostOfKey(const std::string& key, const Key& entry) {
  int64_t cost = SlotCost<std::pair<std::string, Key>>() + CostOf(key);
  if (entry.expires_at != absl::InfiniteFuture()) cost += SlotCost<Due>() + CostOf(key);
  if (!entry.session.empty()) cost += SlotCost<std::string>() + CostOf(key);
  return cost;
}

void Store::Index(const std::string& key, const Key& entry) {
  keys_charge_.Add(CostOfKey(key, entry));
  if (entry.expires_at != absl::InfiniteFuture()) due_.insert(Due{entry.expires_at, key});
  if (!entry.session.empty()) keys_of_session_[entry.session].insert(key);
}

void Store::Unindex(const std::string& key, const Key& entry) {
  keys_charge_.Add(-CostOfKey(key, entry));
  if (entry.expires_at != absl::InfiniteFuture()) due_.erase(Due{entry.expires_at, key});
  if (entry.session.empty()) return;
  auto bound = keys_of_session_.find(entry.session);
  bound->second.erase(key);
  if (bound->second.empty()) keys_of_session_.erase(bound);
}

KeyValue Store::Show(Instant now, const std::string& key, const Key& entry) const {
  KeyValue shown{key, entry.value, entry.revision, entry.created_revision};
  if (entry.expires_at != absl::InfiniteFuture()) shown.expires_in = entry.expires_at - now;
  return shown;
}

size_t Store::FirstUnsatisfied(const ParkedGet& get, size_t from) const {
  // TCPStore looks at each key once, too. Otherwise a client that sets and deletes two keys of a wait
  // of very many makes each look pass all keys between them.
  const size_t steps = get.or_queue ? get.size() - from : get.size();
  for (size_t step = 0; step < steps; ++step) {
    const size_t index = (from + step) % get.size();
    if (index >= get.keys.size()) {
      if (LengthOf(get.queues[index - get.keys.size()]) == 0) return index;
      continue;
    }
    auto it = keys_.find(get.keys[index]);
    const bool there = it == keys_.end() ? get.or_queue && LengthOf(get.keys[index]) > 0
                                         : it->second.revision > get.newer_than;
    if (!there) return index;
  }
  return get.size();
}

absl::StatusOr<GetReply> Store::Read(Instant now, const ParkedGet& get) const {
  GetReply reply;
  reply.revision = revision();
  for (const std::string& queue : get.queues) {
    reply.queue_lengths.push_back(QueueLength{queue, LengthOf(queue)});
  }
  int64_t bytes = 0;
  for (const std::string& key : get.keys) {
    auto it = keys_.find(key);
    if (it != keys_.end()) {
      reply.values.push_back(Show(now, key, it->second));
      if (get.keys_only) reply.values.back().value.reset();
      bytes += reply.values.back().value.size();
      continue;
    }
    const int64_t length = get.or_queue ? LengthOf(key) : 0;
    if (length > 0) {
      reply.queue_lengths.push_back(QueueLength{key, length});
    } else {
      reply.missing_keys.push_back(key);
    }
  }
  if (!get.any_size && bytes > shard_.limits.max_inline_bytes && reply.values.size() > 1) {
    return OverLimit(
        "max_inline_bytes", shard_.limits.max_inline_bytes,
        absl::StrFormat("the values of %d keys have %d bytes together; get fewer at once",
                        reply.values.size(), bytes));
  }
  return reply;
}

void Store::AnswerGet(Step& step, CallId id, const ParkedGet& get) const {
  absl::StatusOr<GetReply> reply = Read(step.now(), get);
  if (reply.ok()) {
    step.Answer(id, *std::move(reply));
  } else {
    step.Fail(id, reply.status());
  }
}

void Store::AddWaitingGet(CallId id, const ParkedGet& get) {
  if (get.on_key()) gets_by_key_[get.name()].insert(id);
  if (!get.on_key() || get.or_queue) gets_by_queue_[get.name()].insert(id);
}

void Store::RemoveWaitingGet(CallId id, const ParkedGet& get) {
  const auto take_off = [&](GetsByName& gets) {
    auto under = gets.find(get.name());
    under->second.erase(id);
    if (under->second.empty()) gets.erase(under);
  };
  if (get.on_key()) take_off(gets_by_key_);
  if (!get.on_key() || get.or_queue) take_off(gets_by_queue_);
}

void Store::WakeGets(Step& step, const GetsByName& gets, const std::string& name) {
  auto under = gets.find(name);
  if (under == gets.end()) return;
  const absl::btree_set<CallId> waiting = under->second;
  for (const CallId id : waiting) {
    auto call = parked_.find(id);
    auto& get = std::get<ParkedGet>(call->second.what);
    const size_t unsatisfied = FirstUnsatisfied(get, get.blocked_on);
    if (unsatisfied == get.size()) {
      const Parked parked = Unpark(call);
      AnswerGet(step, id, std::get<ParkedGet>(parked.what));
    } else if (unsatisfied != get.blocked_on) {
      RemoveWaitingGet(id, get);
      get.blocked_on = unsatisfied;
      AddWaitingGet(id, get);
    }
  }
}

}  // namespace cohort::coordinator
