// Receives whose callers have given up the answers: their objects go back.
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "coordinator/core/exchange/mailboxes.h"

namespace cohort::coordinator {

void Mailboxes::Abandon(Step& step, int receiver, const std::vector<Id128>& operations) {
  std::set<BoxKey> filled;
  absl::flat_hash_set<Id128> others;
  for (const Id128& operation : operations) {
    const auto receipt = handed_out_by_operation_.find(operation);
    if (receipt == handed_out_by_operation_.end()) {
      others.insert(operation);
      continue;
    }
    const auto handed = handed_out_.find(receipt->second);
    if (handed->second.destination != receiver) continue;
    completed_.Add(operation, group_.shard.limits.max_operations_kept);
    Object object = TakeHandedOut(handed);
    object.receipt = 0;
    object.receive_operation = Id128{};
    const BoxKey key(receiver, object.tag);
    boxes_.try_emplace(key);
    PutIntoBox(step, key, std::move(object));
    filled.insert(key);
  }
  if (!others.empty()) AbandonUnanswered(step, receiver, others);
  // All are back before one is handed out, so that they keep their order.
  for (const BoxKey& key : filled) Serve(step, key);
}

void Mailboxes::AbandonUnanswered(Step& step, int receiver,
                                  const absl::flat_hash_set<Id128>& operations) {
  for (const Id128& operation : operations) {
    completed_.Add(operation, group_.shard.limits.max_operations_kept);
  }
  for (auto it = boxes_.lower_bound(BoxKey(receiver, ""));
       it != boxes_.end() && it->first.first == receiver;) {
    const BoxKey key = it->first;
    Box& box = (it++)->second;
    for (auto parked = box.receivers.begin(); parked != box.receivers.end();) {
      if (!operations.contains(parked->operation)) {
        ++parked;
        continue;
      }
      Unpark(parked->id);
      step.Fail(parked->id, absl::CancelledError("its caller has given it up"));
      parked = box.receivers.erase(parked);
    }
    // The caller may not have got the error: the next call gets it again.
    for (auto& [source, lost] : box.lost) {
      if (operations.contains(lost.reported_to)) lost.reported_to = Id128{};
    }
    DropIfEmpty(key);
  }
}

void Mailboxes::Serve(Step& step, const BoxKey& key) {
  Box& box = boxes_.at(key);
  for (auto parked = box.receivers.begin(); parked != box.receivers.end();) {
    Object* const next = Next(box, parked->source);
    if (next == nullptr) {
      ++parked;
      continue;
    }
    const Receiver receiver = *parked;
    parked = box.receivers.erase(parked);
    Unpark(receiver.id);
    Object object = Take(box, *next);
    HandOut(step, receiver.id, receiver.operation, key, object);
  }
  DropIfEmpty(key);
}

}  // namespace cohort::coordinator
