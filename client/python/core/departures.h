// Objects that leave while the process ends: all at once, so that the end takes no longer with many.
#ifndef COHORT_CLIENT_PYTHON_CORE_DEPARTURES_H_
#define COHORT_CLIENT_PYTHON_CORE_DEPARTURES_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "base/threads/thread.h"
#include "client/python/core/handle.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// Counts a departure while it lives. Copies count once.
std::shared_ptr<void> BeginDeparture();

// Runs `leave(object)` and drops the object, on a thread of its own. The object is not used otherwise.
template <typename T, typename Leave>
void Depart(Share<T> object, const Leave& leave) {
  auto run = [object = object.get(), leave, counted = BeginDeparture()]() mutable {
    leave(*object);
    object.reset();
  };
  object = Share<T>();
  // Without a thread, the object is dropped here.
  StartDetachedThread("cohort-leave", std::move(run)).IgnoreError();
}

// Adds the function that waits for departures. Returns false with an exception.
bool AddDepartures(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_DEPARTURES_H_
