// Queues: each value goes to one consumer, in order, and is kept under a receipt until the consumer
// acknowledges it.
//
//   pushed       -> in the queue
//   in the queue -> handed out (receipt); without an operation id of the pop: freed at once
//   handed out   -> acknowledged: freed; the pop was abandoned: in the queue, at its old place
//   and in every state: expired: freed
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/store/store.h"
#include "coordinator/core/store/store_answers.h"

namespace cohort::coordinator {

std::string QueueItemId(const std::string& queue, int64_t sequence) {
  return absl::StrCat(queue, absl::string_view("\0", 1), absl::Dec(sequence, absl::kZeroPad20));
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration,
                   QueuePushCall&& call) {
  const EntryScope scope(*this, step);
  const uint64_t asked = FingerprintOf(caller, call);
  if (operations_.Repeated<QueuePushReply>(step, id, caller.operation_id, asked, call)) return;
  auto queue = queues_.find(call.queue);
  const int64_t kept =
      queue == queues_.end() ? 0 : queue->second.depth() + queue->second.handed_out_count;
  if (kept >= shard_.limits.max_queue_depth) {
    return step.Fail(
        id, OverLimit("max_queue_depth", shard_.limits.max_queue_depth,
                      absl::StrFormat("queue %s has %d values, %d of them handed out and not "
                                      "acknowledged",
                                      call.queue, kept, queue->second.handed_out_count)));
  }
  const absl::Status allowed = CheckValue(
      MemoryKind::kQueues, static_cast<int64_t>(call.value.size()), 0, CostOfItem(call.queue));
  if (!allowed.ok()) return step.Fail(id, allowed);

  if (queue == queues_.end()) queue = queues_.try_emplace(call.queue).first;
  const int64_t sequence = NextNumber();
  Item item;
  item.value = Payload(std::move(call.value), ledger_, MemoryKind::kQueues);
  item.expiration = call.expiration.value_or(data_expiration_);
  item.expires_at = step.now() + item.expiration;
  if (step.keeps_records()) {
    step.Write(key_, RecordKind::kQueueItem, QueueItemId(call.queue, sequence),
               QueueItemRecord{call.queue, sequence, item.value, item.expiration});
  }
  AddItem(queue->second, call.queue, sequence, std::move(item));
  QueuePushReply reply{sequence};
  reply.depth = queue->second.consumers.empty() ? queue->second.depth() : 0;
  AnswerFirst(step, id, caller, asked, reply);
  Serve(step, queue);
  if (reply.depth > 0) WakeGets(step, gets_by_queue_, call.queue);
}

void Store::Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait,
                   QueuePopCall&& call) {
  const EntryScope scope(*this, step);
  const Id128& operation = caller.operation_id;
  const auto pop_of = [](const std::string& queue) {
    return absl::StrCat("a pop of queue \"", queue, "\"");
  };
  if (operations_.Find(operation) != nullptr) {
    return step.Fail(id, operations_.UsedBefore(operation, pop_of(call.queue)));
  }
  auto receipt = receipt_of_operation_.find(operation);
  if (receipt != receipt_of_operation_.end()) {
    const HandedOut& handed = handed_out_.at(receipt->second);
    if (handed.queue != call.queue) {
      return step.Fail(
          id, FirstAnswers::UsedBefore(operation, pop_of(handed.queue), pop_of(call.queue)));
    }
    return step.Answer(id,
                       QueuePopReply{true, handed.item.value, handed.sequence, receipt->second});
  }
  if (completed_pops_.Contains(operation)) return step.Answer(id, QueuePopReply{});
  auto queue = queues_.find(call.queue);
  if (queue != queues_.end() && !queue->second.items.empty()) {
    step.Answer(id, HandOut(step, queue, operation));
    DropIfEmpty(queue);
  } else if (wait > absl::ZeroDuration()) {
    Park(step, id, caller, wait, ParkedPop{call.queue, ++last_arrival_, operation});
  } else {
    step.Answer(id, QueuePopReply{});
    EndPop(step, operation);
  }
}

void Store::EndPop(Step& step, const Id128& operation) {
  if (operation.empty()) return;
  completed_pops_.Add(operation, shard_.limits.max_operations_kept);
  for (auto it = pops_by_operation_.lower_bound({operation, 0});
       it != pops_by_operation_.end() && it->first == operation;
       it = pops_by_operation_.lower_bound({operation, 0})) {
    const CallId id = it->second;
    Unpark(parked_.find(id));
    step.Answer(id, QueuePopReply{});
  }
}

void Store::Settle(Step& step, const Caller& caller) {
  if (caller.acknowledged.empty() && caller.abandoned.empty()) return;
  // First, items expire that are due.
  const EntryScope scope(*this, step);
  for (const int64_t receipt : caller.acknowledged) Acknowledge(step, receipt);
  // All are back before one is handed out, so that they keep their order.
  std::set<std::string> filled;
  for (const Id128& operation : caller.abandoned) {
    if (const std::string* const queue = PutBack(step, operation)) filled.insert(*queue);
  }
  for (const std::string& name : filled) {
    Serve(step, queues_.find(name));
    if (LengthOf(name) > 0) WakeGets(step, gets_by_queue_, name);
  }
}

void Store::Acknowledge(Step& step, int64_t receipt) {
  const auto handed = handed_out_.find(receipt);
  if (handed == handed_out_.end()) return;
  completed_pops_.Add(handed->second.operation, shard_.limits.max_operations_kept);
  DropHandedOut(step, handed);
}

const std::string* Store::PutBack(Step& step, const Id128& operation) {
  // Before the item is back, so that no copy of the pop takes it again.
  EndPop(step, operation);
  const auto receipt = receipt_of_operation_.find(operation);
  if (receipt == receipt_of_operation_.end()) return nullptr;
  const auto handed = handed_out_.find(receipt->second);
  HandedOut back = std::move(handed->second);
  handed_out_.erase(handed);
  receipt_of_operation_.erase(receipt);
  receipt_of_sequence_.erase(back.sequence);
  if (step.keeps_records()) {
    step.Write(key_, RecordKind::kQueueItem, QueueItemId(back.queue, back.sequence),
               QueueItemRecord{back.queue, back.sequence, back.item.value, back.item.expiration});
  }
  const auto queue = queues_.find(back.queue);
  --queue->second.handed_out_count;
  queue->second.items.emplace(back.sequence, std::move(back.item));
  return &queue->first;
}

int64_t Store::LengthOf(const std::string& queue) const {
  auto it = queues_.find(queue);
  return it == queues_.end() ? 0 : it->second.depth();
}

int64_t Store::CostOfItem(const std::string& name) {
  // It may be the only one of its queue, and it may be handed out.
  return NodeCost<std::pair<std::string, Queue>>() + NodeCost<std::pair<int64_t, HandedOut>>() +
         SlotCost<Due>() + SlotCost<std::pair<Id128, int64_t>>() +
         SlotCost<std::pair<int64_t, int64_t>>() + 3 * CostOf(name);
}

void Store::AddItem(Queue& queue, const std::string& name, int64_t sequence, Item item) {
  CountItem(name, sequence, item);
  queue.items.emplace(sequence, std::move(item));
}

void Store::CountItem(const std::string& name, int64_t sequence, const Item& item) {
  if (item.expires_at != absl::InfiniteFuture()) due_.insert(Due{item.expires_at, name, sequence});
  ++queue_item_count_;
  items_charge_.Add(CostOfItem(name));
}

QueuePopReply Store::HandOut(Step& step, Queues::iterator queue, const Id128& operation) {
  const auto head = queue->second.items.begin();
  const int64_t sequence = head->first;
  Item item = std::move(head->second);
  queue->second.items.erase(head);
  QueuePopReply reply{true, item.value, sequence};
  if (operation.empty()) {
    RemoveItem(step, queue->first, sequence, item);
    return reply;
  }
  reply.receipt = shard_.next_receipt();
  if (step.keeps_records()) {
    step.Write(key_, RecordKind::kQueueItem, QueueItemId(queue->first, sequence),
               QueueItemRecord{queue->first, sequence, item.value, item.expiration, reply.receipt,
                               operation});
  }
  KeepHandedOut(queue, reply.receipt,
                HandedOut{queue->first, sequence, std::move(item), operation});
  return reply;
}

void Store::KeepHandedOut(Queues::iterator queue, int64_t receipt, HandedOut handed) {
  ++queue->second.handed_out_count;
  if (!handed.operation.empty()) receipt_of_operation_[handed.operation] = receipt;
  receipt_of_sequence_[handed.sequence] = receipt;
  handed_out_.emplace(receipt, std::move(handed));
}

void Store::Serve(Step& step, Queues::iterator queue) {
  const std::string name = queue->first;
  // Taking its last consumer off may drop the queue, hence the look-up each time.
  for (; queue != queues_.end(); queue = queues_.find(name)) {
    if (queue->second.items.empty() || queue->second.consumers.empty()) return;
    const CallId id = queue->second.consumers.begin()->second;
    const Id128 operation = std::get<ParkedPop>(parked_.at(id).what).operation;
    const QueuePopReply reply = HandOut(step, queue, operation);
    // A repeat may have come while the first call still stood here; together they are one consumer.
    std::vector<CallId> same = {id};
    for (auto it = pops_by_operation_.lower_bound({operation, 0});
         it != pops_by_operation_.end() && it->first == operation; ++it) {
      const auto& pop = std::get<ParkedPop>(parked_.at(it->second).what);
      if (it->second != id && pop.queue == name) same.push_back(it->second);
    }
    for (const CallId each : same) {
      Unpark(parked_.find(each));
      step.Answer(each, reply);
    }
  }
}

void Store::ExpireItem(Step& step, const std::string& name, int64_t sequence) {
  auto receipt = receipt_of_sequence_.find(sequence);
  if (receipt != receipt_of_sequence_.end()) {
    DropHandedOut(step, handed_out_.find(receipt->second));
    return;
  }
  auto queue = queues_.find(name);
  auto item = queue->second.items.find(sequence);
  RemoveItem(step, name, sequence, item->second);
  queue->second.items.erase(item);
  DropIfEmpty(queue);
}

void Store::DropQueues(Step& step, const std::string& prefix) {
  auto queue = queues_.lower_bound(prefix);
  while (queue != queues_.end() && absl::StartsWith(queue->first, prefix)) {
    for (const auto& [sequence, item] : queue->second.items) {
      RemoveItem(step, queue->first, sequence, item);
    }
    queue->second.items.clear();
    DropIfEmpty(queue++);
  }
}

void Store::DropHandedOut(Step& step, std::map<int64_t, HandedOut>::iterator handed) {
  const HandedOut& gone = handed->second;
  auto queue = queues_.find(gone.queue);
  --queue->second.handed_out_count;
  receipt_of_operation_.erase(gone.operation);
  receipt_of_sequence_.erase(gone.sequence);
  RemoveItem(step, gone.queue, gone.sequence, gone.item);
  handed_out_.erase(handed);
  DropIfEmpty(queue);
}

void Store::RemoveItem(Step& step, const std::string& name, int64_t sequence, const Item& item) {
  if (item.expires_at != absl::InfiniteFuture()) due_.erase(Due{item.expires_at, name, sequence});
  if (step.keeps_records()) {
    step.Erase(key_, RecordKind::kQueueItem, QueueItemId(name, sequence));
  }
  --queue_item_count_;
  items_charge_.Add(-CostOfItem(name));
}

void Store::DropIfEmpty(Queues::iterator queue) {
  if (queue->second.empty()) queues_.erase(queue);
}

}  // namespace cohort::coordinator
