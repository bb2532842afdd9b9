#include "client/rendezvous/store_client.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rendezvous/call/change_stream.h"
#include "client/rendezvous/call/change_watcher.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/report/report_codec.h"
#include "client/rendezvous/session/call_mode.h"
#include "client/rendezvous/store_namespace.h"

namespace cohort::client {
namespace {

KeyValue ReadKeyValue(v1::KeyValue& key_value) {
  KeyValue result;
  result.key = std::move(*key_value.mutable_key());
  result.value = std::move(*key_value.mutable_value());
  result.revision = key_value.revision();
  result.created_revision = key_value.created_revision();
  if (key_value.has_expires_in()) result.expires_in = FromProto(key_value.expires_in());
  return result;
}

template <typename Values>
std::vector<KeyValue> ReadKeyValues(Values& values) {
  std::vector<KeyValue> result;
  result.reserve(values.size());
  for (v1::KeyValue& value : values) result.push_back(ReadKeyValue(value));
  return result;
}

// Changes of keys, for ChangeStream.
struct KeyChanges {
  using Event = KeyEvent;
  using Request = v1::WatchRequest;
  using Response = v1::WatchResponse;
  static void Open(Stubs& stubs, grpc::ClientContext* context, const Request* request,
                   grpc::ClientReadReactor<Response>* reactor) {
    stubs.Get<v1::StoreService>().async()->Watch(context, request, reactor);
  }
  static std::vector<Event> Read(Response& response) {
    std::vector<Event> events;
    events.reserve(response.events_size());
    for (v1::KeyEvent& event : *response.mutable_events()) {
      events.push_back({event.deleted(), event.expired(), ReadKeyValue(*event.mutable_key_value())});
    }
    return events;
  }
};

class StoreClientImpl final : public StoreClient, public AsyncStoreClient {
 public:
  explicit StoreClientImpl(std::shared_ptr<StoreNamespace> space) : space_(std::move(space)) {}
  ~StoreClientImpl() override { space_->Flush(); }

  AsyncStoreClient& async() override { return *this; }

  absl::StatusOr<PutResult> Put(absl::string_view key, absl::string_view value,
                                const PutOptions& options, absl::Duration timeout) override {
    return ResultOf<PutResult>(
        [&](auto done) { RunPut(kBlocking, key, value, options, {timeout, nullptr}, done); });
  }
  void Put(absl::string_view key, absl::string_view value, const PutOptions& options,
           const AsyncStoreOptions& call, Done<PutResult> done) override {
    RunPut(kAsync, key, value, options, call, std::move(done));
  }

  absl::StatusOr<PutResult> MultiPut(const std::vector<PutEntry>& entries,
                                     std::optional<absl::Duration> expiration,
                                     absl::Duration timeout) override {
    return ResultOf<PutResult>(
        [&](auto done) { RunMultiPut(kBlocking, entries, expiration, {timeout, nullptr}, done); });
  }
  void MultiPut(const std::vector<PutEntry>& entries, std::optional<absl::Duration> expiration,
                const AsyncStoreOptions& call, Done<PutResult> done) override {
    RunMultiPut(kAsync, entries, expiration, call, std::move(done));
  }

  absl::StatusOr<GetResult> Get(const std::vector<std::string>& keys, const GetOptions& options,
                                absl::Duration timeout) override {
    return ResultOf<GetResult>(
        [&](auto done) { RunGet(kBlocking, keys, options, {timeout, nullptr}, done); });
  }
  void Get(const std::vector<std::string>& keys, const GetOptions& options,
           const AsyncStoreOptions& call, Done<GetResult> done) override {
    RunGet(kAsync, keys, options, call, std::move(done));
  }

  absl::StatusOr<RangeResult> Range(absl::string_view prefix, absl::string_view after,
                                    int page_size, bool keys_only, bool count_only,
                                    absl::Duration timeout) override {
    const RangeOptions options{std::string(after), page_size, keys_only, count_only};
    return ResultOf<RangeResult>(
        [&](auto done) { RunRange(kBlocking, prefix, options, {timeout, nullptr}, done); });
  }
  void Range(absl::string_view prefix, const RangeOptions& options, const AsyncStoreOptions& call,
             Done<RangeResult> done) override {
    RunRange(kAsync, prefix, options, call, std::move(done));
  }

  absl::StatusOr<int64_t> Delete(absl::string_view key, bool prefix,
                                 absl::Duration timeout) override {
    return ResultOf<int64_t>(
        [&](auto done) { RunDelete(kBlocking, key, prefix, {timeout, nullptr}, done); });
  }
  void Delete(absl::string_view key, bool prefix, const AsyncStoreOptions& call,
              Done<int64_t> done) override {
    RunDelete(kAsync, key, prefix, call, std::move(done));
  }

  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta,
                              absl::Duration timeout) override {
    return ResultOf<int64_t>(
        [&](auto done) { RunAdd(kBlocking, key, delta, {timeout, nullptr}, done); });
  }
  void Add(absl::string_view key, int64_t delta, const AsyncStoreOptions& call,
           Done<int64_t> done) override {
    RunAdd(kAsync, key, delta, call, std::move(done));
  }

  absl::StatusOr<int64_t> Append(absl::string_view key, absl::string_view value,
                                 absl::Duration timeout) override {
    return ResultOf<int64_t>(
        [&](auto done) { RunAppend(kBlocking, key, value, {timeout, nullptr}, done); });
  }
  void Append(absl::string_view key, absl::string_view value, const AsyncStoreOptions& call,
              Done<int64_t> done) override {
    RunAppend(kAsync, key, value, call, std::move(done));
  }

  absl::StatusOr<int64_t> QueuePush(absl::string_view queue, absl::string_view value,
                                    std::optional<absl::Duration> expiration,
                                    absl::Duration timeout) override {
    return ResultOf<int64_t>([&](auto done) {
      RunQueuePush(kBlocking, queue, value, expiration, {timeout, nullptr}, done);
    });
  }
  void QueuePush(absl::string_view queue, absl::string_view value,
                 std::optional<absl::Duration> expiration, const AsyncStoreOptions& call,
                 Done<int64_t> done) override {
    RunQueuePush(kAsync, queue, value, expiration, call, std::move(done));
  }

  absl::StatusOr<std::optional<QueueItem>> QueuePop(absl::string_view queue, absl::Duration wait,
                                                    absl::Duration timeout) override {
    return ResultOf<std::optional<QueueItem>>(
        [&](auto done) { RunQueuePop(kBlocking, queue, wait, {timeout, nullptr}, done); });
  }
  void QueuePop(absl::string_view queue, absl::Duration wait, const AsyncStoreOptions& call,
                Done<std::optional<QueueItem>> done) override {
    RunQueuePop(kAsync, queue, wait, call, std::move(done));
  }

  absl::Status Watch(absl::string_view prefix, int64_t from_revision,
                     const std::function<bool(const KeyEvent&)>& on_event,
                     absl::Duration timeout) override {
    const std::unique_ptr<KeyWatcher> watcher =
        NewWatcher(prefix, UntilTimeout(from_revision, timeout));
    return ForEachEvent(*watcher, on_event);
  }
  std::unique_ptr<KeyWatcher> NewWatcher(absl::string_view prefix,
                                         const WatcherOptions& options) override {
    v1::WatchRequest request;
    space_->FillScope(request.mutable_scope());
    request.set_prefix(std::string(prefix));
    std::string what = absl::StrCat("watch \"", prefix, "\"");
    return std::make_unique<ChangeWatcher<KeyChanges>>(std::make_shared<ChangeStream<KeyChanges>>(
        space_->connection().shared_from_this(), what, std::move(request), options,
        [space = space_, what](Instant deadline, std::shared_ptr<Cancellation> cancellation,
                               std::function<void(absl::StatusOr<int64_t>)> done) {
          v1::GetRequest get;
          get.add_keys("-");  // the cheapest call
          const absl::Duration left = deadline - Clock::Steady().Now();
          space->Run(kAsync, method::kGet, {what, false, {left, std::move(cancellation)}},
                     std::move(get),
                     [done = std::move(done)](absl::Status status, v1::GetResponse& response) {
                       if (!status.ok()) return done(std::move(status));
                       done(response.revision());
                     });
        }));
  }

 private:
  static constexpr CallMode kBlocking = CallMode::kBlocking;
  static constexpr CallMode kAsync = CallMode::kAsync;

  // Runs `start(done)`, whose `done(result)` runs in that call, and returns the result.
  template <typename T, typename Start>
  static absl::StatusOr<T> ResultOf(const Start& start) {
    std::optional<absl::StatusOr<T>> result;
    start([&result](absl::StatusOr<T> value) { result.emplace(std::move(value)); });
    return *std::move(result);
  }

  // `Conditions` has expected_revision and expected_value.
  template <typename Conditions, typename Message>
  static void FillConditions(const Conditions& conditions, Message* message) {
    if (conditions.expected_revision.has_value()) {
      message->set_expected_revision(*conditions.expected_revision);
    }
    if (conditions.expected_value.has_value()) {
      message->set_expected_value(*conditions.expected_value);
    }
  }
  template <typename Message>
  static void Fill(const PutEntry& entry, Message* message) {
    message->set_key(entry.key);
    message->set_value(entry.value);
    FillConditions(entry, message);
  }

  // --- Each method runs in one of two modes: `done(result)` runs in the call, or later.

  void RunPut(CallMode mode, absl::string_view key, absl::string_view value,
              const PutOptions& options, const AsyncStoreOptions& call, Done<PutResult> done) {
    v1::PutRequest request;
    request.set_key(std::string(key));
    request.set_value(value.data(), value.size());
    if (options.expiration.has_value()) ToProto(*options.expiration, request.mutable_expiration());
    FillConditions(options, &request);
    RunPut(mode, std::move(request), {absl::StrCat("put \"", key, "\""), true, call},
           std::move(done));
  }

  void RunMultiPut(CallMode mode, const std::vector<PutEntry>& entries,
                   std::optional<absl::Duration> expiration, const AsyncStoreOptions& call,
                   Done<PutResult> done) {
    if (entries.empty()) {
      const absl::Status error = absl::InvalidArgumentError("put of several keys: no entries");
      if (mode == kBlocking) return done(error);
      return space_->connection().timers().Post([done, error] { done(error); });
    }
    v1::PutRequest request;
    Fill(entries[0], &request);
    for (size_t i = 1; i < entries.size(); ++i) Fill(entries[i], request.add_more());
    if (expiration.has_value()) ToProto(*expiration, request.mutable_expiration());
    RunPut(mode, std::move(request), {absl::StrCat("put of ", entries.size(), " keys"), true, call},
           std::move(done));
  }

  void RunPut(CallMode mode, v1::PutRequest request, StoreCall call, Done<PutResult> done) {
    space_->Run(mode, method::kPut, std::move(call), std::move(request),
                [done = std::move(done)](absl::Status status, v1::PutResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  PutResult result;
                  result.written = response.written();
                  result.revision = response.revision();
                  if (response.has_current()) {
                    result.current = ReadKeyValue(*response.mutable_current());
                  }
                  done(std::move(result));
                });
  }

  void RunGet(CallMode mode, const std::vector<std::string>& keys, const GetOptions& options,
              const AsyncStoreOptions& call, Done<GetResult> done) {
    v1::GetRequest request;
    for (const std::string& key : keys) request.add_keys(key);
    for (const std::string& queue : options.queues) request.add_queues(queue);
    request.set_newer_than(options.newer_than);
    request.set_or_queue(options.or_queue);
    std::string what =
        options.queues.empty()
            ? absl::StrCat("get of ", keys.size(), " keys")
            : absl::StrCat("get of ", keys.size(), " keys and ", options.queues.size(), " queues");
    space_->Run(mode, method::kGet, {std::move(what), false, call, options.wait},
                std::move(request),
                [done = std::move(done)](absl::Status status, v1::GetResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  GetResult result;
                  result.values = ReadKeyValues(*response.mutable_values());
                  result.missing_keys.assign(response.missing_keys().begin(),
                                             response.missing_keys().end());
                  result.revision = response.revision();
                  for (v1::QueueLength& length : *response.mutable_queue_lengths()) {
                    result.queue_lengths.push_back(
                        QueueLength{std::move(*length.mutable_queue()), length.length()});
                  }
                  done(std::move(result));
                });
  }

  void RunRange(CallMode mode, absl::string_view prefix, const RangeOptions& options,
                const AsyncStoreOptions& call, Done<RangeResult> done) {
    v1::RangeRequest request;
    request.set_prefix(std::string(prefix));
    request.set_page_token(options.after);
    request.set_page_size(options.page_size);
    request.set_keys_only(options.keys_only);
    request.set_count_only(options.count_only);
    space_->Run(mode, method::kRange, {absl::StrCat("range \"", prefix, "\""), false, call},
                std::move(request),
                [done = std::move(done)](absl::Status status, v1::RangeResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  RangeResult result;
                  result.values = ReadKeyValues(*response.mutable_values());
                  result.next = response.next_page_token();
                  result.count = response.count();
                  result.revision = response.revision();
                  done(std::move(result));
                });
  }

  void RunDelete(CallMode mode, absl::string_view key, bool prefix, const AsyncStoreOptions& call,
                 Done<int64_t> done) {
    v1::DeleteRequest request;
    request.set_key(std::string(key));
    request.set_prefix(prefix);
    space_->Run(mode, method::kDelete, {absl::StrCat("delete \"", key, "\""), true, call},
                std::move(request),
                [done = std::move(done)](absl::Status status, v1::DeleteResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  done(response.deleted_count());
                });
  }

  void RunAdd(CallMode mode, absl::string_view key, int64_t delta, const AsyncStoreOptions& call,
              Done<int64_t> done) {
    v1::AddRequest request;
    request.set_key(std::string(key));
    request.set_delta(delta);
    space_->Run(mode, method::kAdd, {absl::StrCat("add \"", key, "\""), true, call},
                std::move(request),
                [done = std::move(done)](absl::Status status, v1::AddResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  done(response.value());
                });
  }

  void RunAppend(CallMode mode, absl::string_view key, absl::string_view value,
                 const AsyncStoreOptions& call, Done<int64_t> done) {
    v1::AppendRequest request;
    request.set_key(std::string(key));
    request.set_value(value.data(), value.size());
    space_->Run(mode, method::kAppend, {absl::StrCat("append \"", key, "\""), true, call},
                std::move(request),
                [done = std::move(done)](absl::Status status, v1::AppendResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  done(response.size_bytes());
                });
  }

  void RunQueuePush(CallMode mode, absl::string_view queue, absl::string_view value,
                    std::optional<absl::Duration> expiration, const AsyncStoreOptions& call,
                    Done<int64_t> done) {
    v1::QueuePushRequest request;
    request.set_queue(std::string(queue));
    request.set_value(value.data(), value.size());
    if (expiration.has_value()) ToProto(*expiration, request.mutable_expiration());
    space_->Run(mode, method::kQueuePush, {absl::StrCat("queue_push \"", queue, "\""), true, call},
                std::move(request),
                [done = std::move(done)](absl::Status status, v1::QueuePushResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  done(response.sequence());
                });
  }

  void RunQueuePop(CallMode mode, absl::string_view queue, absl::Duration wait,
                   const AsyncStoreOptions& call, Done<std::optional<QueueItem>> done) {
    v1::QueuePopRequest request;
    request.set_queue(std::string(queue));
    space_->Run(mode, method::kQueuePop,
                {absl::StrCat("queue_pop \"", queue, "\""), true, call, wait}, std::move(request),
                [space = space_, done = std::move(done)](absl::Status status,
                                                         v1::QueuePopResponse& response) {
                  if (!status.ok()) return done(std::move(status));
                  if (!response.found()) return done(std::optional<QueueItem>());
                  space->AddReceipt(response.receipt());
                  done(std::optional<QueueItem>(
                      QueueItem{std::move(*response.mutable_value()), response.sequence()}));
                });
  }

  const std::shared_ptr<StoreNamespace> space_;
};

}  // namespace

std::unique_ptr<StoreClient> StoreClient::Create(std::shared_ptr<Connection> connection,
                                                 absl::string_view group) {
  return std::make_unique<StoreClientImpl>(
      std::make_shared<StoreNamespace>(ConnectionImpl::Of(connection), group));
}

}  // namespace cohort::client
