#include "coordinator/service/codec/outgoing_blobs.h"

#include <zlib.h>

#include <algorithm>
#include <utility>

#include "base/rpc/random_bits.h"

namespace cohort::coordinator {

OutgoingBlobs::Issued OutgoingBlobs::Issue(Instant now, const GroupKey& key, const Id128& session,
                                           int readers, std::vector<Payload> parts,
                                           int64_t receipt, int64_t max_bytes) {
  auto content = std::make_shared<BlobContent>();
  uLong checksum = crc32_z(0, nullptr, 0);
  for (const Payload& part : parts) {
    checksum = crc32_combine(checksum, part.crc32(), static_cast<z_off_t>(part.size()));
    content->size_bytes += part.size();
  }
  content->crc32 = static_cast<uint32_t>(checksum);
  content->parts = std::move(parts);

  Entry entry;
  entry.key = key;
  entry.session = session;
  entry.content = content;
  entry.issued_at = now;
  entry.receipt = receipt;
  entry.readers = readers;
  const int64_t id = kFirstId | static_cast<int64_t>(RandomBits().low >> 2);
  MutexLock lock(&mutex_);
  // Equal ids (1 in 2^62) do not occur in practice; the newer blob would replace the older one.
  auto old = entries_.find(id);
  if (old != entries_.end()) Erase(old);
  entry.order = ++last_order_;
  by_age_.emplace(entry.order, id);
  size_bytes_.fetch_add(content->size_bytes, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  entries_.emplace(id, std::move(entry));
  Trim(now, std::max(max_bytes, content->size_bytes));
  return Issued{id, std::move(content)};
}

absl::StatusOr<std::shared_ptr<const BlobContent>> OutgoingBlobs::Find(Instant now,
                                                                       const GroupKey& key,
                                                                       const Id128& session,
                                                                       int64_t id) {
  MutexLock lock(&mutex_);
  Trim(now, INT64_MAX);
  auto it = entries_.find(id);
  if (it == entries_.end() || !(it->second.key == key) ||
      (!it->second.session.empty() && it->second.session != session)) {
    return absl::NotFoundError("no such blob here: freed, or of another member");
  }
  return it->second.content;
}

void OutgoingBlobs::Downloaded(int64_t id) {
  MutexLock lock(&mutex_);
  auto it = entries_.find(id);
  if (it == entries_.end() || it->second.receipt != 0) return;
  Erase(it);
}

void OutgoingBlobs::Acknowledge(const GroupKey& key, const Id128& session,
                                const std::vector<int64_t>& receipts) {
  if (receipts.empty() || count_.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(&mutex_);
  std::vector<int64_t> complete;  // receipts that all readers have acknowledged
  for (auto it = by_age_.begin(); it != by_age_.end();) {
    auto found = entries_.find((it++)->second);
    Entry& entry = found->second;
    if (entry.receipt == 0 || !(entry.key == key) ||
        std::find(receipts.begin(), receipts.end(), entry.receipt) == receipts.end()) {
      continue;
    }
    if (!entry.session.empty()) {
      if (entry.session == session) Erase(found);
      continue;
    }
    entry.acknowledged.insert(session);
    if (static_cast<int>(entry.acknowledged.size()) >= entry.readers) complete.push_back(entry.receipt);
  }
  // One receipt may have several entries: a reader that asked again was given one of its own.
  for (auto it = by_age_.begin(); !complete.empty() && it != by_age_.end();) {
    auto found = entries_.find((it++)->second);
    const Entry& entry = found->second;
    if (entry.key == key && entry.session.empty() &&
        std::find(complete.begin(), complete.end(), entry.receipt) != complete.end()) {
      Erase(found);
    }
  }
}

void OutgoingBlobs::Erase(Entries::iterator it) {
  size_bytes_.fetch_sub(it->second.content->size_bytes, std::memory_order_relaxed);
  count_.fetch_sub(1, std::memory_order_relaxed);
  by_age_.erase(it->second.order);
  entries_.erase(it);
}

void OutgoingBlobs::FreeOld(Instant now) {
  if (absl::ToUnixNanos(now) < due_.load(std::memory_order_relaxed)) return;
  MutexLock lock(&mutex_);
  Trim(now, INT64_MAX);
}

void OutgoingBlobs::Trim(Instant now, int64_t max_bytes) {
  int64_t due = std::numeric_limits<int64_t>::max();
  while (!by_age_.empty()) {
    auto oldest = entries_.find(by_age_.begin()->second);
    const Instant too_old = oldest->second.issued_at + kKept;
    if (now < too_old && size_bytes() <= max_bytes) {
      due = absl::ToUnixNanos(too_old);
      break;
    }
    Erase(oldest);
  }
  due_.store(due, std::memory_order_relaxed);
}

}  // namespace cohort::coordinator
