// Sending and receiving objects. mailboxes_expiry.cc has their expiry, mailboxes_abandoned.cc the
// receives that were given up, mailboxes_parked_calls.cc the parked calls.
#include "coordinator/core/exchange/mailboxes.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/idempotency/first_answers.h"

namespace cohort::coordinator {

Mailboxes::~Mailboxes() {
  group_.shard.timers.Cancel(expiry_timer_);
  for (const auto& [id, key] : receiving_) group_.shard.waits.Done(id);
  for (const auto& [id, sequence] : sending_) group_.shard.waits.Done(id);
}

absl::Status Mailboxes::CheckDestination(int sender, const SendCall& call) const {
  if (call.destination >= group_.world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "destination ", call.destination, " is not below the world size ", group_.world_size));
  }
  if (call.destination == sender) {
    return absl::InvalidArgumentError(
        absl::StrCat("destination ", call.destination, " is the sender itself"));
  }
  if (const Cause* cause = group_.WhyGone(call.destination); cause != nullptr) {
    return group_.Aborted(absl::StrCat("send to rank ", call.destination), *cause);
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> Mailboxes::Send(Step& step, int sender, HeldSend& send) {
  const SendCall& call = send.call;
  if (absl::Status allowed = CheckDestination(sender, call); !allowed.ok()) return allowed;
  const BoxKey key(call.destination, call.tag);
  Box& box = boxes_[key];
  auto queue = box.by_source.find(sender);
  const int64_t depth =
      queue == box.by_source.end() ? 0 : static_cast<int64_t>(queue->second.size());
  if (depth >= group_.shard.limits.max_mailbox_depth) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "mailbox from rank ", sender, " to rank ", call.destination, TagText(call.tag), " holds ",
        depth, " objects; max_mailbox_depth is ", group_.shard.limits.max_mailbox_depth));
  }
  Object object;
  object.generation = group_.generation;
  object.source = sender;
  object.destination = call.destination;
  object.tag = call.tag;
  object.sequence = group_.NextNumber();
  object.payload = std::move(send.payload);
  object.sent_at = step.now();
  object.charge = Charge(*group_.tally, MemoryKind::kObjects, CostOfObject(call.tag));
  object.expiration = call.expiration.value_or(group_.spec.data_expiration);
  const int64_t sequence = object.sequence;

  // In order: if a receiver for this source is parked, the box has no older object of the source.
  auto receiver = std::find_if(box.receivers.begin(), box.receivers.end(), [&](const Receiver& r) {
    return !r.source.has_value() || *r.source == sender;
  });
  if (receiver != box.receivers.end()) {
    const Receiver receiver_call = *receiver;
    box.receivers.erase(receiver);
    Unpark(receiver_call.id);
    if (call.wait_consumed) object.sender_call = send.id;
    HandOut(step, receiver_call.id, receiver_call.operation, key, object);
    DropIfEmpty(key);
    return sequence;
  }
  if (call.wait_consumed) {
    object.sender_call = send.id;
    sending_[send.id] = sequence;
    group_.shard.waits.Park(send.id, this, *group_.tally, step.now(), send.deadline);
  }
  PutIntoBox(step, key, std::move(object));
  return sequence;
}

void Mailboxes::PutIntoBox(Step& step, const BoxKey& key, Object object) {
  Write(step, object);
  const int64_t sequence = object.sequence;
  expiries_.insert({object.sent_at + object.expiration, sequence});
  where_[sequence] = {key, object.source};
  boxes_.at(key).by_source[object.source].emplace(sequence, std::move(object));
  ScheduleExpiry();
}

void Mailboxes::AwaitConsumed(Step& step, CallId id, absl::Duration wait, int64_t sequence) {
  auto it = where_.find(sequence);
  if (it == where_.end()) {
    // Whether an object of an earlier boot was consumed is not known: the answer is false.
    const bool known = sequence > (group_.shard.boot - 1) << 32;
    step.Answer(id, SendReply{sequence, known && unread_.count(sequence) == 0});
    return;
  }
  Object& object = boxes_.at(it->second.first).by_source.at(it->second.second).at(sequence);
  if (object.sender_call != 0) {
    const CallId earlier = object.sender_call;
    Unpark(earlier);
    step.Fail(earlier, absl::CancelledError("a repeat of this call replaced it"));
  }
  object.sender_call = id;
  sending_[id] = sequence;
  group_.shard.waits.Park(id, this, *group_.tally, step.now(), step.now() + wait);
}

absl::Status Mailboxes::CheckSource(int receiver, const std::optional<int>& source) const {
  if (source.has_value() && *source >= group_.world_size) {
    return absl::InvalidArgumentError(
        absl::StrCat("source ", *source, " is not below the world size ", group_.world_size));
  }
  if (source == receiver) {
    return absl::InvalidArgumentError(absl::StrCat("source ", receiver, " is the receiver itself"));
  }
  return absl::OkStatus();
}

absl::Status Mailboxes::CheckUnacknowledged(int receiver) const {
  const auto it = unacknowledged_.find(receiver);
  const int64_t most = group_.shard.limits.max_unacknowledged;
  if (it == unacknowledged_.end() || it->second < most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("rank ", receiver, " has not acknowledged ",
                                                   it->second, " objects; max_unacknowledged is ",
                                                   most));
}

bool Mailboxes::AnswerRepeat(Step& step, CallId id, int receiver, const Id128& operation,
                             const ReceiveCall& call) {
  if (auto again = handed_out_by_operation_.find(operation);
      again != handed_out_by_operation_.end()) {
    const Object& first = handed_out_.at(again->second);
    if (first.destination == receiver && first.tag == call.tag &&
        call.source.value_or(first.source) == first.source) {
      AnswerWith(step, id, first);
      return true;
    }
    const auto title = [&](int rank, std::optional<int> source, const std::string& tag) {
      return Title(Receiver{0, rank, source, operation, step.now()}, tag);
    };
    step.Fail(id,
              FirstAnswers::UsedBefore(operation, title(first.destination, first.source, first.tag),
                                       title(receiver, call.source, call.tag)));
    return true;
  }
  if (!completed_.Contains(operation)) return false;
  ReceiveReply nothing;
  nothing.timed_out = true;
  nothing.missing = Missing(step.now(), Receiver{id, receiver, call.source, operation, step.now()});
  step.Answer(id, std::move(nothing));
  return true;
}

Mailboxes::Object Mailboxes::Take(Box& box, Object& boxed) {
  Object object = std::move(boxed);
  auto queue = box.by_source.find(object.source);
  queue->second.erase(object.sequence);
  if (queue->second.empty()) box.by_source.erase(queue);
  where_.erase(object.sequence);
  expiries_.erase({object.sent_at + object.expiration, object.sequence});
  return object;
}

void Mailboxes::Receive(Step& step, CallId id, const Member& receiver, const Id128& operation_id,
                        absl::Duration wait, const ReceiveCall& call) {
  if (absl::Status valid = CheckSource(receiver.rank, call.source); !valid.ok()) {
    step.Fail(id, std::move(valid));
    return;
  }
  if (!operation_id.empty() && AnswerRepeat(step, id, receiver.rank, operation_id, call)) return;
  if (absl::Status room = CheckUnacknowledged(receiver.rank); !room.ok()) {
    step.Fail(id, std::move(room));
    return;
  }
  const BoxKey key(receiver.rank, call.tag);
  Box& box = boxes_[key];
  // A repeat of a call that is still parked takes its place.
  for (auto it = box.receivers.begin(); !operation_id.empty() && it != box.receivers.end(); ++it) {
    if (it->operation != operation_id) continue;
    Unpark(it->id);
    step.Fail(it->id, absl::CancelledError("a repeat of this call replaced it"));
    box.receivers.erase(it);
    break;
  }
  if (ReportLost(step, id, operation_id, key, call.source)) return;
  if (Object* next = Next(box, call.source); next != nullptr) {
    Object object = Take(box, *next);
    HandOut(step, id, operation_id, key, object);
    DropIfEmpty(key);
    return;
  }
  const Receiver waiting{id, receiver.rank, call.source, operation_id, step.now()};
  if (std::optional<Cause> cause = WhyNothingComes(receiver.rank, call.source); cause.has_value()) {
    group_.Abort(step, id, Title(waiting, call.tag), *cause);
    DropIfEmpty(key);
    return;
  }
  box.receivers.push_back(waiting);
  receiving_[id] = key;
  group_.shard.waits.Park(id, this, *group_.tally, step.now(), step.now() + wait);
}

Mailboxes::Object* Mailboxes::Next(Box& box, const std::optional<int>& source) {
  if (source.has_value()) {
    auto it = box.by_source.find(*source);
    return it == box.by_source.end() ? nullptr : &it->second.begin()->second;
  }
  Object* oldest = nullptr;
  for (auto& [rank, objects] : box.by_source) {
    Object& first = objects.begin()->second;
    if (oldest == nullptr || first.sequence < oldest->sequence) oldest = &first;
  }
  return oldest;
}

void Mailboxes::HandOut(Step& step, CallId id, const Id128& operation, const BoxKey& key,
                        Object& object) {
  AnswerConsumed(step, object, true);
  if (operation.empty()) {  // not repeatable: freed as it is handed out
    AnswerWith(step, id, object);
    EraseRow(step, object.sequence);
    return;
  }
  object.receipt = group_.shard.next_receipt();
  object.receive_operation = operation;
  AnswerWith(step, id, object);
  Write(step, object);
  ++unacknowledged_[key.first];
  handed_out_by_operation_[operation] = object.receipt;
  expiries_.insert({object.sent_at + object.expiration, -object.receipt});
  ScheduleExpiry();
  const int64_t receipt = object.receipt;
  handed_out_.emplace(receipt, std::move(object));
}

void Mailboxes::AnswerWith(Step& step, CallId id, const Object& object) {
  ReceiveReply reply;
  reply.payload = object.payload;
  reply.source = object.source;
  reply.sequence = object.sequence;
  reply.receipt = object.receipt;
  step.Answer(id, std::move(reply));
}

void Mailboxes::AnswerConsumed(Step& step, Object& object, bool consumed) {
  if (object.sender_call == 0) return;
  Unpark(object.sender_call);
  step.Answer(object.sender_call, SendReply{object.sequence, consumed});
  object.sender_call = 0;
}

void Mailboxes::AbortSender(Step& step, Object& object, const Cause& cause) {
  if (object.sender_call == 0) return;
  const CallId id = std::exchange(object.sender_call, 0);
  Unpark(id);
  group_.Abort(step, id, absl::StrCat("send to rank ", object.destination), cause);
}

void Mailboxes::Acknowledge(Step& step, int receiver, int64_t receipt) {
  auto it = handed_out_.find(receipt);
  if (it != handed_out_.end() && it->second.destination == receiver) Free(step, it);
}

void Mailboxes::Free(Step& step, std::map<int64_t, Object>::iterator handed) {
  const Object object = TakeHandedOut(handed);
  EraseRow(step, object.sequence);
  completed_.Add(object.receive_operation, group_.shard.limits.max_operations_kept);
}

Mailboxes::Object Mailboxes::TakeHandedOut(std::map<int64_t, Object>::iterator handed) {
  Object object = std::move(handed->second);
  handed_out_.erase(handed);
  expiries_.erase({object.sent_at + object.expiration, -object.receipt});
  handed_out_by_operation_.erase(object.receive_operation);
  const auto count = unacknowledged_.find(object.destination);
  if (count != unacknowledged_.end() && --count->second == 0) unacknowledged_.erase(count);
  return object;
}

std::optional<Cause> Mailboxes::WhyNothingComes(int receiver,
                                                const std::optional<int>& source) const {
  if (source.has_value()) {
    const Cause* cause = group_.WhyGone(*source);
    return cause == nullptr ? std::nullopt : std::optional<Cause>(*cause);
  }
  std::optional<Cause> last;
  for (int rank = 0; rank < group_.world_size; ++rank) {
    if (rank == receiver) continue;
    const Cause* cause = group_.WhyGone(rank);
    if (cause == nullptr) return std::nullopt;
    last = *cause;
  }
  return last;
}

void Mailboxes::MemberGone(Step& step, int rank, const Cause& cause) {
  // No rank will read the objects that were sent to this one.
  std::vector<int64_t> unreadable;
  for (const auto& [key, box] : boxes_) {
    if (key.first != rank) continue;
    for (const auto& [source, objects] : box.by_source) {
      for (const auto& [sequence, object] : objects) unreadable.push_back(sequence);
    }
  }
  for (int64_t sequence : unreadable) {
    const auto [key, source] = where_.at(sequence);
    Box& box = boxes_.at(key);
    Object object = Take(box, box.by_source.at(source).at(sequence));
    AnswerConsumed(step, object, false);
    RememberUnread(sequence);
    EraseRow(step, sequence);
    DropIfEmpty(key);
  }
  numbered_sends_.Abort(step, rank, cause);
  std::vector<int64_t> receipts;
  for (const auto& [receipt, object] : handed_out_) {
    if (object.destination == rank) receipts.push_back(receipt);
  }
  for (int64_t receipt : receipts) Free(step, handed_out_.find(receipt));
  // The objects that it sent stay, but its own parked sends end.
  for (auto& [key, box] : boxes_) {
    auto queue = box.by_source.find(rank);
    if (queue == box.by_source.end()) continue;
    for (auto& [sequence, object] : queue->second) AbortSender(step, object, cause);
  }
  std::vector<std::pair<BoxKey, CallId>> hopeless;
  for (auto& [key, box] : boxes_) {
    for (const Receiver& receiver : box.receivers) {
      if (receiver.rank == rank || WhyNothingComes(receiver.rank, receiver.source).has_value()) {
        hopeless.push_back({key, receiver.id});
      }
    }
  }
  for (const auto& [key, id] : hopeless) {
    Box& box = boxes_.at(key);
    auto it = std::find_if(box.receivers.begin(), box.receivers.end(),
                           [&, call = id](const Receiver& r) { return r.id == call; });
    const std::string title = Title(*it, key.second);
    const Cause why = it->rank == rank ? cause : *WhyNothingComes(it->rank, it->source);
    box.receivers.erase(it);
    Unpark(id);
    group_.Abort(step, id, title, why);
    DropIfEmpty(key);
  }
}

void Mailboxes::Break(Step& step, const Cause& cause) {
  numbered_sends_.Abort(step, std::nullopt, cause);
  for (auto& [key, box] : boxes_) {
    for (const Receiver& receiver : box.receivers) {
      Unpark(receiver.id);
      group_.Abort(step, receiver.id, Title(receiver, key.second), cause);
    }
    box.receivers.clear();
    for (auto& [source, objects] : box.by_source) {
      for (auto& [sequence, object] : objects) AbortSender(step, object, cause);
    }
  }
}

void Mailboxes::Clear(Step& step) {
  boxes_.clear();
  where_.clear();
  handed_out_.clear();
  handed_out_by_operation_.clear();
  completed_.Clear();
  unread_.clear();
  unacknowledged_.clear();
  expiries_.clear();
  group_.shard.timers.Cancel(expiry_timer_);
  expiry_at_ = absl::InfiniteFuture();
  step.EraseAll(group_.key, RecordKind::kObject);
  numbered_sends_.Clear(step);
}

void Mailboxes::Unpark(CallId id) {
  receiving_.erase(id);
  sending_.erase(id);
  group_.shard.waits.Done(id);
}

void Mailboxes::DropIfEmpty(const BoxKey& key) {
  auto it = boxes_.find(key);
  if (it != boxes_.end() && it->second.empty()) boxes_.erase(it);
}

}  // namespace cohort::coordinator
