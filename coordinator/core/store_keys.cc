// Keys and counters.
#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/printable.h"
#include "coordinator/core/store.h"
#include "coordinator/core/store_internal.h"

namespace cohort::coordinator {
namespace {

constexpr int kDefaultPage = 100;
constexpr int kMaxPage = 1000;

// SimpleAtoi forgives spaces; a counter is digits and a sign.
bool ParseCounter(const std::string& text, int64_t* value) {
  if (text.empty() || absl::ascii_isspace(text.front()) || absl::ascii_isspace(text.back())) {
    return false;
  }
  return absl::SimpleAtoi(text, value);
}

}  // namespace

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, PutCall&& call) {
  const Turn turn(*this, step);
  auto it = keys_.find(call.key);
  const auto refused = [&] {
    PutReply reply{false, revision()};
    if (it != keys_.end()) reply.current = Show(step.now(), it->first, it->second);
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
  const int64_t revision_now = it == keys_.end() ? 0 : it->second.revision;
  if (call.expected_revision.has_value() && *call.expected_revision != revision_now) {
    return AnswerFirst(step, id, caller, asked, refused());
  }
  const absl::Status allowed = CheckKey(call.key, it, static_cast<int64_t>(call.value.size()));
  if (!allowed.ok()) return step.Fail(id, allowed);

  Key entry;
  entry.value = Payload(std::move(call.value), ledger_, MemoryKind::kKeys);
  entry.expiration = call.expiration;
  if (call.expiration.has_value()) entry.expires_at = step.now() + *call.expiration;
  if (call.bind_to_session) entry.session = caller.session;
  const int64_t written = WriteKey(step, call.key, std::move(entry));
  AnswerFirst(step, id, caller, asked, PutReply{true, written});
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait,
                   GetCall&& call) {
  const Turn turn(*this, step);
  ParkedGet get{std::move(call.keys), call.newer_than};
  get.blocked_on = FirstUnsatisfied(get, 0);
  if (call.wait && wait > absl::ZeroDuration() && get.blocked_on < get.keys.size()) {
    Park(step, id, caller, wait, std::move(get));
  } else {
    AnswerGet(step, id, get);
  }
}

void Store::Handle(Step& step, CallId id, const Caller&, absl::Duration, RangeCall&& call) {
  const Turn turn(*this, step);
  const size_t page = call.page_size <= 0 ? kDefaultPage : std::min(call.page_size, kMaxPage);
  RangeReply reply;
  reply.revision = revision();
  int64_t bytes = 0;
  bool more = false;
  auto it = keys_.lower_bound(call.prefix);
  if (call.prefix.empty()) {
    // The usual listing of everything need not walk everything for each page.
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
    reply.values.push_back(Show(step.now(), it->first, it->second));
    if (call.keys_only) reply.values.back().value.reset();
  }
  if (more) reply.next = reply.values.back().key;
  step.Answer(id, std::move(reply));
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, DeleteCall&& call) {
  const Turn turn(*this, step);
  const uint64_t asked = FingerprintOf(caller, call);
  if (operations_.Repeated<DeleteReply>(step, id, caller.operation_id, asked, call)) return;
  DeleteReply reply;
  auto it = call.prefix ? keys_.lower_bound(call.key) : keys_.find(call.key);
  while (it != keys_.end() && absl::StartsWith(it->first, call.key)) {
    it = DeleteKey(step, it, Deletion::kAsked);
    ++reply.deleted_count;
    if (!call.prefix) break;
  }
  reply.revision = revision();
  // Also when nothing was there: a repeat must not delete what was put since.
  AnswerFirst(step, id, caller, asked, reply);
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, AddCall&& call) {
  const Turn turn(*this, step);
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
  AnswerFirst(step, id, caller, asked, AddReply{value, written});
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration, AppendCall&& call) {
  const Turn turn(*this, step);
  const uint64_t asked = FingerprintOf(caller, call);
  if (operations_.Repeated<AppendReply>(step, id, caller.operation_id, asked, call)) return;
  auto it = keys_.find(call.key);
  const int64_t old_size = it == keys_.end() ? 0 : it->second.value.size();
  const int64_t size = old_size + static_cast<int64_t>(call.value.size());
  const absl::Status allowed = CheckKey(call.key, it, size);
  if (!allowed.ok()) return step.Fail(id, allowed);
  Key entry = it == keys_.end() ? Key{} : it->second;
  entry.value = Payload(absl::StrCat(entry.value.bytes(), call.value), ledger_, MemoryKind::kKeys);
  const int64_t written = WriteKey(step, call.key, std::move(entry));
  AnswerFirst(step, id, caller, asked, AppendReply{size, written});
}

void Store::EndSession(Step& step, const Id128& session) {
  const Turn turn(*this, step);
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
  WakeGets(step, key);
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
  if (key_count() >= shard_.limits.max_keys) {
    return OverLimit("max_keys", shard_.limits.max_keys,
                     absl::StrFormat("the namespace has %d keys", key_count()));
  }
  // Indexed by time and session, perhaps.
  return CheckValue(MemoryKind::kKeys, size, 0,
                    SlotCost<std::pair<std::string, Key>>() + SlotCost<Due>() +
                        SlotCost<std::string>() + 4 * CostOf(key));
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
  for (size_t step = 0; step < get.keys.size(); ++step) {
    const size_t index = (from + step) % get.keys.size();
    auto it = keys_.find(get.keys[index]);
    if (it == keys_.end() || it->second.revision <= get.newer_than) return index;
  }
  return get.keys.size();
}

absl::StatusOr<GetReply> Store::Read(Instant now, const ParkedGet& get) const {
  GetReply reply;
  reply.revision = revision();
  int64_t bytes = 0;
  for (const std::string& key : get.keys) {
    auto it = keys_.find(key);
    if (it == keys_.end()) {
      reply.missing_keys.push_back(key);
      continue;
    }
    bytes += it->second.value.size();
    reply.values.push_back(Show(now, key, it->second));
  }
  if (bytes > shard_.limits.max_inline_bytes && reply.values.size() > 1) {
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

void Store::WakeGets(Step& step, const std::string& key) {
  auto under = gets_by_key_.find(key);
  if (under == gets_by_key_.end()) return;
  const absl::btree_set<CallId> waiting = std::move(under->second);
  gets_by_key_.erase(under);
  for (const CallId id : waiting) {
    auto call = parked_.find(id);
    auto& get = std::get<ParkedGet>(call->second.what);
    const size_t unsatisfied = FirstUnsatisfied(get, get.blocked_on);
    if (unsatisfied < get.keys.size()) get.blocked_on = unsatisfied;
    // Back on a list in either case: Unpark takes it off.
    gets_by_key_[get.keys[get.blocked_on]].insert(id);
    if (unsatisfied == get.keys.size()) {
      const Parked parked = Unpark(call);
      AnswerGet(step, id, std::get<ParkedGet>(parked.what));
    }
  }
}

}  // namespace cohort::coordinator
