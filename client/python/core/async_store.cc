#include "client/rendezvous/async_store_client.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/python/core/async_call.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/group_values.h"
#include "client/python/core/handle.h"
#include "client/python/core/method.h"
#include "client/python/core/rendezvous.h"
#include "client/python/core/store_values.h"
#include "client/rendezvous/store_client.h"

namespace cohort::python {
namespace {

using client::AsyncStoreClient;
using client::AsyncStoreOptions;
using Store = Handle<client::StoreClient>;
using Queue = std::shared_ptr<Completions>;
using Call = Completions::Call;

AsyncStoreOptions Options(const Call& call, absl::Duration timeout) {
  return {timeout, call.cancellation};
}

PyObject* Put(Store& store, Queue queue, std::string key, Bytes value,
              std::optional<absl::Duration> expiration, std::optional<int64_t> expected_revision,
              std::optional<Blob> expected_value, absl::Duration timeout) {
  const client::PutOptions options{expiration, expected_revision,
                                   BytesOf(std::move(expected_value))};
  return StartCall(store, queue, [&](AsyncStoreClient& s, const Call& call) {
    s.Put(key, value.view(), options, Options(call, timeout),
          call.Slot<client::PutResult>(WritePut));
  });
}

PyObject* MultiPut(Store& store, Queue queue, std::vector<std::string> keys,
                   std::vector<Blob> values, std::optional<absl::Duration> expiration,
                   absl::Duration timeout) {
  const std::vector<std::string> bytes = BytesOf(std::move(values));
  return StartCall(store, queue, [&](AsyncStoreClient& s, const Call& call) {
    s.MultiPut(PutEntries(keys, bytes), expiration, Options(call, timeout),
               call.Slot<client::PutResult>(WritePut));
  });
}

PyObject* Get(Store& store, Queue queue, std::vector<std::string> keys, absl::Duration wait,
              int64_t newer_than, std::vector<std::string> queues, bool or_queue,
              absl::Duration timeout) {
  const client::GetOptions options{wait, newer_than, std::move(queues), or_queue};
  return StartCall(store, queue, [&](AsyncStoreClient& s, const Call& call) {
    s.Get(keys, options, Options(call, timeout), call.Slot<client::GetResult>(WriteGet));
  });
}

PyObject* Range(Store& store, Queue queue, std::string prefix, std::string after, int page_size,
                bool keys_only, absl::Duration timeout) {
  const client::RangeOptions options{std::move(after), page_size, keys_only};
  return StartCall(store, queue, [&](AsyncStoreClient& s, const Call& call) {
    s.Range(prefix, options, Options(call, timeout), call.Slot<client::RangeResult>(WriteRange));
  });
}

PyObject* Delete(Store& store, Queue queue, std::string key, bool prefix, absl::Duration timeout) {
  return StartCall(store, queue, [&](AsyncStoreClient& s, const Call& call) {
    s.Delete(key, prefix, Options(call, timeout), call.Slot<int64_t>(WriteNumber));
  });
}

PyObject* Add(Store& store, Queue queue, std::string key, int64_t delta, absl::Duration timeout) {
  return StartCall(store, queue, [&](AsyncStoreClient& s, const Call& call) {
    s.Add(key, delta, Options(call, timeout), call.Slot<int64_t>(WriteNumber));
  });
}

PyObject* Append(Store& store, Queue queue, std::string key, Bytes value, absl::Duration timeout) {
  return StartCall(store, queue, [&](AsyncStoreClient& s, const Call& call) {
    s.Append(key, value.view(), Options(call, timeout), call.Slot<int64_t>(WriteNumber));
  });
}

PyObject* QueuePush(Store& store, Queue completions, std::string queue, Bytes value,
                    std::optional<absl::Duration> expiration, absl::Duration timeout) {
  return StartCall(store, completions, [&](AsyncStoreClient& s, const Call& call) {
    s.QueuePush(queue, value.view(), expiration, Options(call, timeout),
                call.Slot<int64_t>(WriteNumber));
  });
}

PyObject* QueuePop(Store& store, Queue completions, std::string queue, absl::Duration wait,
                   absl::Duration timeout) {
  return StartCall(store, completions, [&](AsyncStoreClient& s, const Call& call) {
    s.QueuePop(queue, wait, Options(call, timeout),
               call.Slot<std::optional<client::QueueItem>>(WriteItem));
  });
}

}  // namespace

const std::vector<PyMethodDef>& AsyncStoreMethods() {
  static const auto* const methods = new std::vector<PyMethodDef>{
      Method<&Put>("start_put", {"completions", "key", "value", "expiration", "expected_revision",
                                 "expected_value", "timeout"}),
      Method<&MultiPut>("start_multi_put",
                        {"completions", "keys", "values", "expiration", "timeout"}),
      Method<&Get>("start_get",
                   {"completions", "key", "wait", "newer_than", "queues", "or_queue", "timeout"}),
      Method<&Range>("start_range",
                     {"completions", "prefix", "after", "page_size", "keys_only", "timeout"}),
      Method<&Delete>("start_delete", {"completions", "key", "prefix", "timeout"}),
      Method<&Add>("start_add", {"completions", "key", "delta", "timeout"}),
      Method<&Append>("start_append", {"completions", "key", "value", "timeout"}),
      Method<&QueuePush>("start_queue_push",
                         {"completions", "queue", "value", "expiration", "timeout"}),
      Method<&QueuePop>("start_queue_pop", {"completions", "queue", "wait", "timeout"}),
  };
  return *methods;
}

}  // namespace cohort::python
