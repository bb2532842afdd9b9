// Values that are too large to travel inline in an answer, kept until their readers have fetched
// them.
//
// An entry is freed when all its readers have acknowledged its receipt (or, without a receipt, have
// downloaded it to the end). It is also freed after ten minutes, and when the entries exceed the
// bound together: then the oldest are freed first.
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_OUTGOING_BLOBS_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_OUTGOING_BLOBS_H_

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/id128.h"
#include "base/threads/mutex.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/types.h"

namespace cohort::coordinator {

// Values one after the other.
struct BlobContent {
  std::vector<Payload> parts;
  int64_t size_bytes = 0;
  uint32_t crc32 = 0;
};

// Thread-safe.
class OutgoingBlobs {
 public:
  static constexpr absl::Duration kKept = absl::Minutes(10);

  // Whether an id is one of these; the ids of uploaded blobs are smaller.
  static bool IsOutgoing(int64_t id) { return id >= kFirstId; }

  // Keeps `parts` for the member of `session`. If `session` is empty, keeps them for `readers`
  // members of the group: any caller that knows the group and the id may read, and ids cannot be
  // guessed. Computes the checksum outside of the lock.
  struct Issued {
    int64_t id = 0;
    std::shared_ptr<const BlobContent> content;
  };
  Issued Issue(Instant now, const GroupKey& key, const Id128& session, int readers,
               std::vector<Payload> parts, int64_t receipt, int64_t max_bytes)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Errors: NOT_FOUND (freed, unknown, or another member's).
  absl::StatusOr<std::shared_ptr<const BlobContent>> Find(Instant now, const GroupKey& key,
                                                          const Id128& session, int64_t id)
      ABSL_LOCKS_EXCLUDED(mutex_);
  // A reader has downloaded it to the end.
  void Downloaded(int64_t id) ABSL_LOCKS_EXCLUDED(mutex_);
  // The member of `session` does not need the values of these receipts any more. Cheap if no value
  // is kept.
  void Acknowledge(const GroupKey& key, const Id128& session, const std::vector<int64_t>& receipts)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // Frees blobs that are too old. Every call does so, because a blob that was never fetched would
  // otherwise stay until the next large value. Cheap when no blob is due.
  void FreeOld(Instant now) ABSL_LOCKS_EXCLUDED(mutex_);

  int64_t size_bytes() const { return size_bytes_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kFirstId = int64_t{1} << 62;

  struct Entry {
    GroupKey key;
    Id128 session;
    std::shared_ptr<const BlobContent> content;
    Instant issued_at;
    uint64_t order = 0;
    int64_t receipt = 0;
    int readers = 1;
    absl::flat_hash_set<Id128> acknowledged;
  };
  using Entries = absl::flat_hash_map<int64_t, Entry>;

  void Erase(Entries::iterator it) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Trim(Instant now, int64_t max_bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Mutex mutex_;
  Entries entries_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, int64_t> by_age_ ABSL_GUARDED_BY(mutex_);  // order -> id
  uint64_t last_order_ ABSL_GUARDED_BY(mutex_) = 0;
  std::atomic<int64_t> size_bytes_{0};
  std::atomic<int64_t> count_{0};
  // When the oldest becomes too old, in nanoseconds, or earlier. FreeOld reads it without the lock.
  std::atomic<int64_t> due_{std::numeric_limits<int64_t>::max()};
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_OUTGOING_BLOBS_H_
