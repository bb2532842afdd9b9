// Keys, counters and queues of the coordinator, for programs that are in no group or in one.
#ifndef COHORT_CLIENT_RENDEZVOUS_STORE_CLIENT_H_
#define COHORT_CLIENT_RENDEZVOUS_STORE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/rendezvous/async_store_client.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/store_types.h"

namespace cohort::client {

// Thread-safe. Mutations are repeated internally with one operation id: each acts once. `timeout`
// limits every call; errors as in process_group.h.
class StoreClient {
 public:
  // `group` empty: the tenant's own namespace.
  static std::unique_ptr<StoreClient> Create(std::shared_ptr<Connection> connection, absl::string_view group);
  virtual ~StoreClient() = default;

  // The same methods without blocking. It lives as long as this object.
  virtual AsyncStoreClient& async() = 0;

  virtual absl::StatusOr<PutResult> Put(absl::string_view key, absl::string_view value,
                                        const PutOptions& options = {},
                                        absl::Duration timeout = absl::Seconds(30)) = 0;
  // Writes all entries in one step, or no entry if a condition does not hold. At least one entry,
  // at most 1000, no key twice (else INVALID_ARGUMENT). `expiration` is for all entries.
  virtual absl::StatusOr<PutResult> MultiPut(const std::vector<PutEntry>& entries,
                                             std::optional<absl::Duration> expiration = {},
                                             absl::Duration timeout = absl::Seconds(30)) = 0;
  // Reads keys and lengths of queues, at most 1000 in all, and waits for them according to
  // `options`.
  virtual absl::StatusOr<GetResult> Get(const std::vector<std::string>& keys, const GetOptions& options,
                                        absl::Duration timeout = absl::Seconds(30)) = 0;
  // With `wait` > 0 blocks until all keys exist (and are newer than `newer_than`).
  absl::StatusOr<GetResult> Get(const std::vector<std::string>& keys,
                                absl::Duration wait = absl::ZeroDuration(), int64_t newer_than = 0,
                                absl::Duration timeout = absl::Seconds(30)) {
    GetOptions options;
    options.wait = wait;
    options.newer_than = newer_than;
    return Get(keys, options, timeout);
  }
  virtual absl::StatusOr<RangeResult> Range(absl::string_view prefix, absl::string_view after = "",
                                            int page_size = 100, bool keys_only = false,
                                            bool count_only = false,
                                            absl::Duration timeout = absl::Seconds(30)) = 0;
  virtual absl::StatusOr<int64_t> Delete(absl::string_view key, bool prefix = false,
                                         absl::Duration timeout = absl::Seconds(30)) = 0;
  virtual absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta,
                                      absl::Duration timeout = absl::Seconds(30)) = 0;
  virtual absl::StatusOr<int64_t> Append(absl::string_view key, absl::string_view value,
                                         absl::Duration timeout = absl::Seconds(30)) = 0;
  virtual absl::StatusOr<int64_t> QueuePush(absl::string_view queue, absl::string_view value,
                                            std::optional<absl::Duration> expiration = {},
                                            absl::Duration timeout = absl::Seconds(30)) = 0;
  // The number of values in the queue; 0 also for a queue that never had a value.
  absl::StatusOr<int64_t> QueueLen(absl::string_view queue, absl::Duration timeout = absl::Seconds(30)) {
    GetOptions options;
    options.queues.emplace_back(queue);
    absl::StatusOr<GetResult> result = Get({}, options, timeout);
    if (!result.ok()) return result.status();
    return result->queue_lengths.empty() ? 0 : result->queue_lengths[0].length;
  }
  // Absent: the queue stayed empty for `wait`.
  virtual absl::StatusOr<std::optional<QueueItem>> QueuePop(absl::string_view queue, absl::Duration wait,
                                                            absl::Duration timeout = absl::Seconds(30)) = 0;
  // Calls `on_event` for each change after `from_revision` (0: from now), on the caller's thread,
  // until it returns false or `timeout` ends (then OK). OUT_OF_RANGE: the changes are compacted;
  // call Range and watch from its revision.
  virtual absl::Status Watch(absl::string_view prefix, int64_t from_revision,
                             const std::function<bool(const KeyEvent&)>& on_event,
                             absl::Duration timeout) = 0;

 protected:
  StoreClient() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_STORE_CLIENT_H_
