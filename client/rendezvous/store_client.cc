#include "client/rendezvous/store_client.h"

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/call/stream_reader.h"
#include "client/rendezvous/call/unary_call.h"
#include "client/rendezvous/report/report_codec.h"
#include "client/rendezvous/session/receipts.h"

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

// The state that outlives the client while its last acknowledgement is on its way.
class StoreNamespace final : public std::enable_shared_from_this<StoreNamespace> {
 public:
  StoreNamespace(std::shared_ptr<ConnectionImpl> connection, absl::string_view group)
      : connection_(std::move(connection)), group_(group) {}

  ConnectionImpl& connection() const { return *connection_; }
  Interruption& interruption() { return interruption_; }

  void FillScope(v1::Scope* scope) const {
    scope->set_tenant(connection_->options().tenant);
    scope->set_group(group_);
  }

  // `wait` absent: the method does not wait.
  template <typename M>
  absl::Status Call(const M& method, std::string what, bool mutates,
                    std::optional<absl::Duration> wait, absl::Duration timeout,
                    typename M::Request& request, typename M::Response* response) {
    v1::Scope* scope = request.mutable_scope();
    FillScope(scope);
    if (mutates) scope->set_operation_id(connection_->NewOperationId());
    {
      MutexLock lock(&mutex_);
      receipts_.Ride(scope);
    }
    const Instant now = Clock::Steady().Now();
    CallLimits limits{std::move(what), now + timeout};
    limits.wait_until = wait.has_value() ? now + *wait : absl::InfinitePast();
    absl::Status status =
        CallMonitored(*connection_, method, std::move(limits), interruption_, request, response);
    if (!status.ok() && scope->acknowledged_receipts_size() > 0) {
      {
        MutexLock lock(&mutex_);
        receipts_.Return(*scope);
      }
      ScheduleFlush();
    }
    return status;
  }

  void AddReceipt(int64_t receipt) {
    if (receipt == 0) return;
    {
      MutexLock lock(&mutex_);
      receipts_.Add(receipt);
    }
    ScheduleFlush();
  }

  // Receipts that no other call carried go with the cheapest call.
  void Flush() {
    v1::GetRequest request;
    FillScope(request.mutable_scope());
    request.add_keys("-");
    {
      MutexLock lock(&mutex_);
      flush_scheduled_ = false;
      if (receipts_.empty()) return;
      receipts_.Ride(request.mutable_scope());
    }
    CallLimits limits{"acknowledge", Clock::Steady().Now() + absl::Seconds(10)};
    limits.wait_until = absl::InfinitePast();
    const v1::Scope scope = request.scope();
    std::make_shared<AsyncCall<decltype(method::kGet)>>(
        connection_, method::kGet, std::move(limits), std::move(request),
        [self = shared_from_this(), scope](const absl::Status& status, v1::GetResponse&) {
          if (status.ok()) return;
          MutexLock lock(&self->mutex_);
          self->receipts_.Return(scope);
        })
        ->Start();
  }

 private:
  void ScheduleFlush() {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(flush_scheduled_, true)) return;
    }
    connection_->timers().After(absl::Seconds(1), [weak = weak_from_this()] {
      if (auto self = weak.lock()) self->Flush();
    });
  }

  const std::shared_ptr<ConnectionImpl> connection_;
  const std::string group_;
  Interruption interruption_;  // never raised: these calls end by their timeouts

  Mutex mutex_;
  Receipts receipts_ ABSL_GUARDED_BY(mutex_);
  bool flush_scheduled_ ABSL_GUARDED_BY(mutex_) = false;
};

class StoreClientImpl final : public StoreClient {
 public:
  explicit StoreClientImpl(std::shared_ptr<StoreNamespace> space) : space_(std::move(space)) {}
  ~StoreClientImpl() override { space_->Flush(); }

  absl::StatusOr<PutResult> Put(absl::string_view key, absl::string_view value,
                                const PutOptions& options, absl::Duration timeout) override {
    v1::PutRequest request;
    request.set_key(std::string(key));
    request.set_value(value.data(), value.size());
    if (options.expiration.has_value()) ToProto(*options.expiration, request.mutable_expiration());
    FillConditions(options, &request);
    return Put(request, absl::StrCat("put \"", key, "\""), timeout);
  }

  absl::StatusOr<PutResult> MultiPut(const std::vector<PutEntry>& entries,
                                     std::optional<absl::Duration> expiration,
                                     absl::Duration timeout) override {
    if (entries.empty()) return absl::InvalidArgumentError("put of several keys: no entries");
    v1::PutRequest request;
    Fill(entries[0], &request);
    for (size_t i = 1; i < entries.size(); ++i) Fill(entries[i], request.add_more());
    if (expiration.has_value()) ToProto(*expiration, request.mutable_expiration());
    return Put(request, absl::StrCat("put of ", entries.size(), " keys"), timeout);
  }

  absl::StatusOr<GetResult> Get(const std::vector<std::string>& keys, const GetOptions& options,
                                absl::Duration timeout) override {
    v1::GetRequest request;
    for (const std::string& key : keys) request.add_keys(key);
    for (const std::string& queue : options.queues) request.add_queues(queue);
    request.set_newer_than(options.newer_than);
    request.set_or_queue(options.or_queue);
    const std::string what =
        options.queues.empty()
            ? absl::StrCat("get of ", keys.size(), " keys")
            : absl::StrCat("get of ", keys.size(), " keys and ", options.queues.size(), " queues");
    v1::GetResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kGet, what, false, WaitOrNone(options.wait),
                                        timeout, request, &response));
    GetResult result;
    result.values = ReadKeyValues(*response.mutable_values());
    result.missing_keys.assign(response.missing_keys().begin(), response.missing_keys().end());
    result.revision = response.revision();
    for (v1::QueueLength& length : *response.mutable_queue_lengths()) {
      result.queue_lengths.push_back(
          QueueLength{std::move(*length.mutable_queue()), length.length()});
    }
    return result;
  }

  absl::StatusOr<RangeResult> Range(absl::string_view prefix, absl::string_view after,
                                    int page_size, bool keys_only, bool count_only,
                                    absl::Duration timeout) override {
    v1::RangeRequest request;
    request.set_prefix(std::string(prefix));
    request.set_page_token(std::string(after));
    request.set_page_size(page_size);
    request.set_keys_only(keys_only);
    request.set_count_only(count_only);
    v1::RangeResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kRange, absl::StrCat("range \"", prefix, "\""),
                                        false, std::nullopt, timeout, request, &response));
    RangeResult result;
    result.values = ReadKeyValues(*response.mutable_values());
    result.next = response.next_page_token();
    result.count = response.count();
    result.revision = response.revision();
    return result;
  }

  absl::StatusOr<int64_t> Delete(absl::string_view key, bool prefix,
                                 absl::Duration timeout) override {
    v1::DeleteRequest request;
    request.set_key(std::string(key));
    request.set_prefix(prefix);
    v1::DeleteResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kDelete, absl::StrCat("delete \"", key, "\""), true,
                                        std::nullopt, timeout, request, &response));
    return response.deleted_count();
  }

  absl::StatusOr<int64_t> Add(absl::string_view key, int64_t delta,
                              absl::Duration timeout) override {
    v1::AddRequest request;
    request.set_key(std::string(key));
    request.set_delta(delta);
    v1::AddResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kAdd, absl::StrCat("add \"", key, "\""), true,
                                        std::nullopt, timeout, request, &response));
    return response.value();
  }

  absl::StatusOr<int64_t> Append(absl::string_view key, absl::string_view value,
                                 absl::Duration timeout) override {
    v1::AppendRequest request;
    request.set_key(std::string(key));
    request.set_value(value.data(), value.size());
    v1::AppendResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kAppend, absl::StrCat("append \"", key, "\""), true,
                                        std::nullopt, timeout, request, &response));
    return response.size_bytes();
  }

  absl::StatusOr<int64_t> QueuePush(absl::string_view queue, absl::string_view value,
                                    std::optional<absl::Duration> expiration,
                                    absl::Duration timeout) override {
    v1::QueuePushRequest request;
    request.set_queue(std::string(queue));
    request.set_value(value.data(), value.size());
    if (expiration.has_value()) ToProto(*expiration, request.mutable_expiration());
    v1::QueuePushResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kQueuePush,
                                        absl::StrCat("queue_push \"", queue, "\""), true,
                                        std::nullopt, timeout, request, &response));
    return response.sequence();
  }

  absl::StatusOr<std::optional<QueueItem>> QueuePop(absl::string_view queue, absl::Duration wait,
                                                    absl::Duration timeout) override {
    v1::QueuePopRequest request;
    request.set_queue(std::string(queue));
    v1::QueuePopResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kQueuePop,
                                        absl::StrCat("queue_pop \"", queue, "\""), true,
                                        WaitOrNone(wait), timeout, request, &response));
    if (!response.found()) return std::optional<QueueItem>();
    space_->AddReceipt(response.receipt());
    return std::optional<QueueItem>(
        QueueItem{std::move(*response.mutable_value()), response.sequence()});
  }

  absl::Status Watch(absl::string_view prefix, int64_t from_revision,
                     const std::function<bool(const KeyEvent&)>& on_event,
                     absl::Duration timeout) override {
    const auto open = [&](grpc::ClientContext* context, int64_t from) {
      v1::WatchRequest request;
      space_->FillScope(request.mutable_scope());
      request.set_prefix(std::string(prefix));
      request.set_from_revision(from);
      return space_->connection().stubs().Get<v1::StoreService>().Watch(context, request);
    };
    const auto take = [&](v1::WatchResponse& response) {
      for (v1::KeyEvent& event : *response.mutable_events()) {
        KeyEvent read{event.deleted(), event.expired(), ReadKeyValue(*event.mutable_key_value())};
        if (!on_event(read)) return false;
      }
      return true;
    };
    return ReadChanges<v1::WatchResponse>(space_->connection(),
                                          absl::StrCat("watch \"", prefix, "\""), from_revision,
                                          timeout, space_->interruption(), open, take);
  }

 private:
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

  absl::StatusOr<PutResult> Put(v1::PutRequest& request, std::string what, absl::Duration timeout) {
    v1::PutResponse response;
    COHORT_RETURN_IF_ERROR(space_->Call(method::kPut, std::move(what), true, std::nullopt, timeout,
                                        request, &response));
    PutResult result;
    result.written = response.written();
    result.revision = response.revision();
    if (response.has_current()) result.current = ReadKeyValue(*response.mutable_current());
    return result;
  }

  static std::optional<absl::Duration> WaitOrNone(absl::Duration wait) {
    if (wait > absl::ZeroDuration()) return wait;
    return std::nullopt;
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
