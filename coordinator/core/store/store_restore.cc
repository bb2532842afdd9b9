// Restores the rows of an earlier boot. The numbers of this boot start above all of theirs, so
// restoring takes no new number. Their events are gone; a watch that asks for them gets
// OUT_OF_RANGE.
#include "coordinator/core/store/store.h"

namespace cohort::coordinator {

void Store::Restore(Instant now, const KeyRecord& record) {
  Key entry;
  entry.value = Payload(record.value.bytes(), ledger_, MemoryKind::kKeys);
  entry.revision = record.revision;
  entry.created_revision = record.created_revision;
  entry.expiration = record.expiration;
  if (record.expiration.has_value()) entry.expires_at = now + *record.expiration;
  entry.session = record.session;
  auto [it, is_new] = keys_.try_emplace(record.key, entry);
  if (!is_new) return;
  Index(it->first, it->second);
  ArmTimer();
}

void Store::Restore(Instant now, const QueueItemRecord& record) {
  auto queue = queues_.try_emplace(record.queue).first;
  Item item;
  item.value = Payload(record.value.bytes(), ledger_, MemoryKind::kQueues);
  item.expiration = record.expiration;
  item.expires_at = now + record.expiration;
  const bool known = queue->second.items.count(record.sequence) != 0 ||
                     receipt_of_sequence_.contains(record.sequence);
  if (!known && record.receipt != 0) {
    CountItem(record.queue, record.sequence, item);
    KeepHandedOut(queue, record.receipt,
                  HandedOut{record.queue, record.sequence, std::move(item), record.pop_operation});
  } else if (!known) {
    AddItem(queue->second, record.queue, record.sequence, std::move(item));
  }
  ArmTimer();
}

}  // namespace cohort::coordinator
