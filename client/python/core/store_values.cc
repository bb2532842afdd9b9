#include "client/python/core/store_values.h"

#include <utility>

#include "client/python/core/convert.h"

namespace cohort::python {
namespace {

PyObject* WriteKeyValue(const client::KeyValue& value) {
  const Object expires(value.expires_in.has_value() ? Write(*value.expires_in) : WriteNone());
  if (!expires) return nullptr;
  return Py_BuildValue("(NNLLO)", WriteText(value.key), WriteBytes(value.value),
                       static_cast<long long>(value.revision),          // NOLINT: Python's type
                       static_cast<long long>(value.created_revision),  // NOLINT: Python's type
                       expires.get());
}

}  // namespace

PyObject* WritePut(const client::PutResult& result) {
  const Object current(result.current.has_value() ? WriteKeyValue(*result.current) : WriteNone());
  if (!current) return nullptr;
  return Py_BuildValue("(NLO)", Write(result.written),
                       static_cast<long long>(result.revision),  // NOLINT: Python's type
                       current.get());
}

PyObject* WriteGet(const client::GetResult& result) {
  return Py_BuildValue("(NNLN)", WriteList(result.values, WriteKeyValue),
                       WriteList(result.missing_keys, WriteText),
                       static_cast<long long>(result.revision),  // NOLINT: Python's type
                       WriteList(result.queue_lengths, [](const client::QueueLength& queue) {
                         return Write(queue.length);
                       }));
}

PyObject* WriteRange(const client::RangeResult& result) {
  return Py_BuildValue("(NNLL)", WriteList(result.values, WriteKeyValue), WriteText(result.next),
                       static_cast<long long>(result.count),      // NOLINT: Python's type
                       static_cast<long long>(result.revision));  // NOLINT: Python's type
}

PyObject* WriteItem(const std::optional<client::QueueItem>& item) {
  return item.has_value() ? WriteBytes(item->value) : WriteNone();
}

std::vector<client::PutEntry> PutEntries(const std::vector<std::string>& keys,
                                         const std::vector<std::string>& values) {
  std::vector<client::PutEntry> entries(keys.size());
  for (size_t i = 0; i < keys.size() && i < values.size(); ++i) {
    entries[i].key = keys[i];
    entries[i].value = values[i];
  }
  return entries;
}

}  // namespace cohort::python
