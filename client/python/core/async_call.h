// Calls to the coordinator that do not block: an event loop of Python gets their results.
#ifndef COHORT_CLIENT_PYTHON_CORE_ASYNC_CALL_H_
#define COHORT_CLIENT_PYTHON_CORE_ASYNC_CALL_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/threads/thread.h"
#include "client/python/core/blocking.h"
#include "client/python/core/completions.h"
#include "client/python/core/convert.h"
#include "client/python/core/handle.h"
#include "client/python/core/python_api.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::python {

// Runs `start(call)`, which must not block. Returns the number that the completion has, or null with
// an exception.
template <typename Start>
PyObject* StartCall(const std::shared_ptr<Completions>& completions, const Start& start) {
  if (RaiseIfForked() || PyErr_CheckSignals() != 0) return nullptr;
  const Completions::Call call = completions->Begin();
  start(call);
  return Write(call.id);
}

// Runs `start(object->async(), call)`; fails if the object is closed.
template <typename T, typename Start>
PyObject* StartCall(const Handle<T>& handle, const std::shared_ptr<Completions>& completions,
                    const Start& start) {
  const Share<T> object = handle.Use();
  if (object == nullptr) return nullptr;
  return StartCall(completions,
                   [&](const Completions::Call& call) { start(object->async(), call); });
}

// For a call of the library that blocks: runs `call(cancellation)`, which returns a StatusOr<T>, on
// a thread of its own. `write(value)` makes the result of Python.
template <typename T, typename Write>
PyObject* StartThreadCall(
    const std::shared_ptr<Completions>& completions,
    std::function<absl::StatusOr<T>(const std::shared_ptr<client::Cancellation>&)> call,
    Write write) {
  return StartCall(completions, [&](const Completions::Call& started) {
    const auto end = started.Slot<T>(write);
    absl::Status status = StartDetachedThread(
        "cohort-await",
        [call = std::move(call), end, cancellation = started.cancellation]() mutable {
          auto result = call(cancellation);
          call = nullptr;  // drops what the call used before the program hears of its end
          end(std::move(result));
        });
    if (!status.ok()) end(status);
  });
}

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_ASYNC_CALL_H_
