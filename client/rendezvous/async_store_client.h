// The methods of a StoreClient that do not block, for event loops and fan-out.
//
//   store->async().Get({"checkpoint"}, options, {}, [](absl::StatusOr<GetResult> result) { ... });
//
// Each does what the method of the same name in store_client.h does, with the same errors. `done`
// runs once, on a thread of the library, and must not block. It may run after the StoreClient is
// destroyed, because calls in flight go on.
#ifndef COHORT_CLIENT_RENDEZVOUS_ASYNC_STORE_CLIENT_H_
#define COHORT_CLIENT_RENDEZVOUS_ASYNC_STORE_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/store_types.h"
#include "client/rendezvous/watcher.h"

namespace cohort::client {

struct AsyncStoreOptions {
  absl::Duration timeout = absl::Seconds(30);
  // Ends the call early, with its reason. May be null.
  std::shared_ptr<Cancellation> cancellation;
};

// Thread-safe.
class AsyncStoreClient {
 public:
  template <typename T>
  using Done = std::function<void(absl::StatusOr<T>)>;

  virtual void Put(absl::string_view key, absl::string_view value, const PutOptions& options,
                   const AsyncStoreOptions& call, Done<PutResult> done) = 0;
  virtual void MultiPut(const std::vector<PutEntry>& entries,
                        std::optional<absl::Duration> expiration, const AsyncStoreOptions& call,
                        Done<PutResult> done) = 0;
  virtual void Get(const std::vector<std::string>& keys, const GetOptions& options,
                   const AsyncStoreOptions& call, Done<GetResult> done) = 0;
  virtual void Range(absl::string_view prefix, const RangeOptions& options,
                     const AsyncStoreOptions& call, Done<RangeResult> done) = 0;
  virtual void Delete(absl::string_view key, bool prefix, const AsyncStoreOptions& call,
                      Done<int64_t> done) = 0;
  virtual void Add(absl::string_view key, int64_t delta, const AsyncStoreOptions& call,
                   Done<int64_t> done) = 0;
  virtual void Append(absl::string_view key, absl::string_view value,
                      const AsyncStoreOptions& call, Done<int64_t> done) = 0;
  virtual void QueuePush(absl::string_view queue, absl::string_view value,
                         std::optional<absl::Duration> expiration, const AsyncStoreOptions& call,
                         Done<int64_t> done) = 0;
  virtual void QueuePop(absl::string_view queue, absl::Duration wait,
                        const AsyncStoreOptions& call, Done<std::optional<QueueItem>> done) = 0;

  // A watch of the keys with this prefix: see watcher.h. It does not open yet, and may outlive the
  // StoreClient.
  virtual std::unique_ptr<KeyWatcher> NewWatcher(absl::string_view prefix,
                                                 const WatcherOptions& options = {}) = 0;

 protected:
  ~AsyncStoreClient() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_ASYNC_STORE_CLIENT_H_
