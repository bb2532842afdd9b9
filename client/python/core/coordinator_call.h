// Calls to the coordinator. A handler of a signal that raises ends them for this rank alone.
#ifndef COHORT_CLIENT_PYTHON_CORE_COORDINATOR_CALL_H_
#define COHORT_CLIENT_PYTHON_CORE_COORDINATOR_CALL_H_

#include <memory>

#include "absl/status/status.h"
#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/handle.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {

// Runs `call(object)` and returns `write(blocking, result)`, which makes the result or an exception
// of it. Returns null with an exception if the object is closed, or a signal came before.
template <typename T, typename Call, typename Write>
PyObject* CallCoordinator(const Handle<T>& handle, const Call& call, const Write& write) {
  const Share<T> object = handle.Use();
  if (object == nullptr) return nullptr;
  client::Cancellation cancellation;
  const auto end = [&](const absl::Status& reason) { cancellation.Cancel(reason); };
  Blocking blocking(end, &*object);
  if (blocking.raised()) return nullptr;
  const auto result = blocking.Run([&] {
    const client::CancellationScope scope(cancellation);
    return call(*object);
  });
  return write(blocking, result);
}

// For calls that return a Status: returns None.
template <typename T, typename Call>
PyObject* CallForStatus(const Handle<T>& handle, const Call& call) {
  return CallCoordinator(handle, call, [](Blocking& blocking, const absl::Status& status) {
    return status.ok() && !blocking.raised() ? WriteNone() : blocking.Raise(status);
  });
}

// For calls that return a StatusOr: returns `write(value)`.
template <typename T, typename Call, typename Write>
PyObject* CallForResult(const Handle<T>& handle, const Call& call, const Write& write) {
  return CallCoordinator(handle, call, [&](Blocking& blocking, const auto& result) {
    return result.ok() && !blocking.raised() ? write(*result) : blocking.Raise(result.status());
  });
}

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_COORDINATOR_CALL_H_
