// The expiry of objects, reports of expired objects to readers, and journal rows.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/exchange/mailboxes.h"

namespace cohort::coordinator {
namespace {

// In the row of an object that expired unread.
constexpr int64_t kLostReceipt = -1;

std::string RowId(int64_t sequence) { return absl::StrCat(absl::Dec(sequence, absl::kZeroPad20)); }

}  // namespace

int64_t Mailboxes::CostOfObject(const std::string& tag) const {
  // Each may be the only one in its box, and its tag is in the box's key, in `where_` and in
  // itself.
  return NodeCost<std::pair<int64_t, Object>>() + NodeCost<std::pair<BoxKey, Box>>() +
         NodeCost<std::pair<int, std::map<int64_t, Object>>>() +
         SlotCost<std::pair<int64_t, std::pair<BoxKey, int>>>() +
         SlotCost<std::pair<Id128, int64_t>>() + NodeCost<std::pair<Instant, int64_t>>() +
         3 * CostOf(tag);
}

void Mailboxes::RememberLost(Box& box, int source, int64_t sequence) {
  Lost& lost = box.lost[source];
  if (lost.sequences.empty()) {
    lost.charge = Charge(*group_.tally, MemoryKind::kObjects,
                         NodeCost<std::pair<int, Lost>>() + NodeCost<std::pair<BoxKey, Box>>());
  }
  lost.sequences.push_back(sequence);
  lost.charge.Add(2 * sizeof(int64_t));  // its vector doubles
}

// --- Expiry.

void Mailboxes::ScheduleExpiry() {
  const Instant next = expiries_.empty() ? absl::InfiniteFuture() : expiries_.begin()->first;
  // A timer that fires early does no harm; most objects are read long before they expire.
  if (next >= expiry_at_) return;
  group_.shard.timers.Cancel(expiry_timer_);
  expiry_at_ = next;
  expiry_timer_ = group_.shard.timers.Schedule(next, [this](Step& step) { RunExpiry(step); });
}

void Mailboxes::RunExpiry(Step& step) {
  expiry_timer_ = 0;
  expiry_at_ = absl::InfiniteFuture();
  while (!expiries_.empty() && expiries_.begin()->first <= step.now()) {
    const int64_t which = expiries_.begin()->second;
    if (which < 0) {
      // It was read; only the acknowledgement was missing.
      Free(step, handed_out_.find(-which));
      continue;
    }
    const auto [key, source] = where_.at(which);
    Lose(step, boxes_.at(key).by_source.at(source).at(which));
  }
  ScheduleExpiry();
}

void Mailboxes::Lose(Step& step, Object& boxed) {
  Box& box = boxes_.at(BoxKey(boxed.destination, boxed.tag));
  Object object = Take(box, boxed);
  RememberLost(box, object.source, object.sequence);
  box.lost.at(object.source).reported_to = Id128{};
  ++expired_count_;
  RememberUnread(object.sequence);
  AnswerConsumed(step, object, false);
  object.payload.reset();
  object.receipt = kLostReceipt;
  Write(step, object);
}

bool Mailboxes::ReportLost(Step& step, CallId id, const Id128& operation, const BoxKey& key,
                           const std::optional<int>& source) {
  Box& box = boxes_.at(key);
  auto it = source.has_value() ? box.lost.find(*source) : box.lost.begin();
  while (it != box.lost.end()) {
    const auto lost = it++;
    if (lost->second.reported_to.empty() || lost->second.reported_to == operation) {
      const auto [first, last] =
          std::minmax_element(lost->second.sequences.begin(), lost->second.sequences.end());
      const size_t count = lost->second.sequences.size();
      step.Fail(id, absl::DataLossError(absl::StrCat(
                        count, count == 1 ? " object" : " objects", " from rank ", lost->first,
                        " to rank ", key.first, TagText(key.second),
                        " expired unread: SendResponse.sequence ", *first,
                        count == 1 ? "" : absl::StrCat(" to ", *last))));
      lost->second.reported_to = operation;
      if (operation.empty()) ForgetLost(step, box, lost);
      DropIfEmpty(key);
      return true;
    }
    // Another call of the receiver shows that it got the error.
    ForgetLost(step, box, lost);
    if (source.has_value()) break;
  }
  return false;
}

void Mailboxes::ForgetLost(Step& step, Box& box, std::map<int, Lost>::iterator lost) {
  completed_.Add(lost->second.reported_to, group_.shard.limits.max_operations_kept);
  for (int64_t sequence : lost->second.sequences) {
    EraseRow(step, sequence);
  }
  box.lost.erase(lost);
}

void Mailboxes::RememberUnread(int64_t sequence) {
  unread_.insert(sequence);
  if (static_cast<int64_t>(unread_.size()) > group_.shard.limits.max_operations_kept) {
    unread_.erase(unread_.begin());
  }
}

void Mailboxes::Expire(Step& step, absl::Duration older_than, int64_t& count, int64_t& bytes) {
  std::vector<int64_t> old;
  for (const auto& [key, box] : boxes_) {
    for (const auto& [source, objects] : box.by_source) {
      for (const auto& [sequence, object] : objects) {
        if (step.now() - object.sent_at >= older_than) old.push_back(sequence);
      }
    }
  }
  for (int64_t sequence : old) {
    const auto [key, source] = where_.at(sequence);
    Object& object = boxes_.at(key).by_source.at(source).at(sequence);
    ++count;
    bytes += object.payload.size();
    Lose(step, object);
  }
}

// --- Journal.

void Mailboxes::Write(Step& step, const Object& object) {
  if (!step.keeps_records()) return;
  step.Write(group_.key, RecordKind::kObject, RowId(object.sequence), ObjectRecord(object));
}

void Mailboxes::EraseRow(Step& step, int64_t sequence) {
  if (step.keeps_records()) step.Erase(group_.key, RecordKind::kObject, RowId(sequence));
}

void Mailboxes::Restore(Instant now, const ObjectRecord& record) {
  Object object;
  static_cast<ObjectRecord&>(object) = record;
  object.payload = Payload(record.payload.bytes(), group_.ledger, MemoryKind::kObjects);
  object.sent_at = now;
  const Instant expires = now + object.expiration;
  if (object.receipt == kLostReceipt) {
    RememberLost(boxes_[BoxKey(object.destination, object.tag)], object.source, object.sequence);
    return;
  }
  object.charge = Charge(*group_.tally, MemoryKind::kObjects, CostOfObject(object.tag));
  if (object.receipt != 0) {
    ++unacknowledged_[object.destination];
    handed_out_by_operation_[object.receive_operation] = object.receipt;
    expiries_.insert({expires, -object.receipt});
    handed_out_.emplace(object.receipt, std::move(object));
  } else {
    const BoxKey key(object.destination, object.tag);
    where_[object.sequence] = {key, object.source};
    expiries_.insert({expires, object.sequence});
    boxes_[key].by_source[object.source].emplace(object.sequence, std::move(object));
  }
  ScheduleExpiry();
}

}  // namespace cohort::coordinator
