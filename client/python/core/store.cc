#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "client/python/core/convert.h"
#include "client/python/core/coordinator_call.h"
#include "client/python/core/errors.h"
#include "client/python/core/group_values.h"
#include "client/python/core/handle.h"
#include "client/python/core/method.h"
#include "client/python/core/rendezvous.h"
#include "client/python/core/store_values.h"
#include "client/python/core/watch.h"
#include "client/rendezvous/store_client.h"

namespace cohort::python {
namespace {

using client::StoreClient;
using Store = Handle<StoreClient>;

PyObject* Connect(PyObject* /*module*/, PyObject* dict) {
  Options options(dict);
  client::ConnectionOptions connection;
  std::string group;
  if (!options.Get("address", &connection.address) || !options.Get("tenant", &connection.tenant) ||
      !options.Get("group", &group) || !options.Finish()) {
    return nullptr;
  }
  const auto end = [](const absl::Status& /*reason*/) {};  // it does not wait
  Blocking blocking(end);
  if (blocking.raised()) return nullptr;
  absl::StatusOr<std::shared_ptr<client::Connection>> made =
      blocking.Run([&] { return client::Connection::Create(connection); });
  if (!made.ok()) return blocking.Raise(made.status());
  return WriteInstance(std::make_unique<Store>(StoreClient::Create(*std::move(made), group)));
}

PyObject* Put(Store& store, std::string key, Bytes value, std::optional<absl::Duration> expiration,
              std::optional<int64_t> expected_revision, std::optional<Blob> expected_value,
              absl::Duration timeout) {
  const client::PutOptions options{expiration, expected_revision,
                                   BytesOf(std::move(expected_value))};
  return CallForResult(
      store, [&](StoreClient& s) { return s.Put(key, value.view(), options, timeout); }, WritePut);
}

PyObject* MultiPut(Store& store, std::vector<std::string> keys, std::vector<Blob> values,
                   std::optional<absl::Duration> expiration, absl::Duration timeout) {
  const std::vector<client::PutEntry> entries = PutEntries(keys, BytesOf(std::move(values)));
  return CallForResult(
      store, [&](StoreClient& s) { return s.MultiPut(entries, expiration, timeout); }, WritePut);
}

PyObject* Get(Store& store, std::vector<std::string> keys, absl::Duration wait, int64_t newer_than,
              std::vector<std::string> queues, bool or_queue, absl::Duration timeout) {
  const client::GetOptions options{wait, newer_than, std::move(queues), or_queue};
  return CallForResult(
      store, [&](StoreClient& s) { return s.Get(keys, options, timeout); },
      WriteGet);
}

PyObject* Range(Store& store, std::string prefix, std::string after, int page_size, bool keys_only,
                absl::Duration timeout) {
  return CallForResult(
      store,
      [&](StoreClient& s) { return s.Range(prefix, after, page_size, keys_only, false, timeout); },
      WriteRange);
}

PyObject* Delete(Store& store, std::string key, bool prefix, absl::Duration timeout) {
  return CallForResult(
      store, [&](StoreClient& s) { return s.Delete(key, prefix, timeout); }, WriteNumber);
}

PyObject* Add(Store& store, std::string key, int64_t delta, absl::Duration timeout) {
  return CallForResult(
      store, [&](StoreClient& s) { return s.Add(key, delta, timeout); }, WriteNumber);
}

PyObject* Append(Store& store, std::string key, Bytes value, absl::Duration timeout) {
  return CallForResult(
      store, [&](StoreClient& s) { return s.Append(key, value.view(), timeout); }, WriteNumber);
}

PyObject* QueuePush(Store& store, std::string queue, Bytes value,
                    std::optional<absl::Duration> expiration, absl::Duration timeout) {
  return CallForResult(
      store, [&](StoreClient& s) { return s.QueuePush(queue, value.view(), expiration, timeout); },
      WriteNumber);
}

PyObject* QueuePop(Store& store, std::string queue, absl::Duration wait, absl::Duration timeout) {
  return CallForResult(
      store, [&](StoreClient& s) { return s.QueuePop(queue, wait, timeout); },
      WriteItem);
}

PyObject* Watch(Store& store, std::string prefix, int64_t from_revision,
                std::optional<absl::Duration> timeout, absl::Duration reconnect_timeout) {
  const Share<StoreClient> used = store.Use();
  if (used == nullptr) return nullptr;
  return WriteKeyWatch(used->async().NewWatcher(
      prefix, WatchOptions(from_revision, timeout, reconnect_timeout)));
}

PyObject* Release(Store& store) {
  store.Close();
  return WriteNone();
}

// The last one is empty.
std::vector<PyMethodDef> AllMethods() {
  std::vector<PyMethodDef> methods = {
    Method<&Put>("put",
                 {"key", "value", "expiration", "expected_revision", "expected_value", "timeout"}),
    Method<&MultiPut>("multi_put", {"keys", "values", "expiration", "timeout"}),
    Method<&Get>("get", {"key", "wait", "newer_than", "queues", "or_queue", "timeout"}),
    Method<&Range>("range", {"prefix", "after", "page_size", "keys_only", "timeout"}),
    Method<&Delete>("delete", {"key", "prefix", "timeout"}),
    Method<&Add>("add", {"key", "delta", "timeout"}),
    Method<&Append>("append", {"key", "value", "timeout"}),
    Method<&QueuePush>("queue_push", {"queue", "value", "expiration", "timeout"}),
    Method<&QueuePop>("queue_pop", {"queue", "wait", "timeout"}),
    Method<&Watch>("watch", {"prefix", "from_revision", "timeout", "reconnect_timeout"}),
    MethodAlsoInChild<&Release>("release"),};
  const std::vector<PyMethodDef>& more = AsyncStoreMethods();
  methods.insert(methods.end(), more.begin(), more.end());
  methods.push_back({});
  return methods;
}

PyMethodDef functions[] = {Function<&Connect>("connect_store"), {}};

}  // namespace

bool AddStore(PyObject* module) {
  static auto* const methods = new std::vector<PyMethodDef>(AllMethods());
  const Object type(MakeType<Store>("cohort._core.Store", methods->data()));
  return type && PyModule_AddObjectRef(module, "Store", type.get()) == 0 &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace cohort::python
