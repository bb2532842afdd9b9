#include "client/python/core/departures.h"

#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "client/python/core/blocking.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"
#include "client/python/core/method.h"

namespace cohort::python {
namespace {

struct State {
  Mutex mutex;
  int running ABSL_GUARDED_BY(mutex) = 0;

  void Add(int more) {
    MutexLock lock(&mutex);
    running += more;
  }
};
State& Departures() {
  static auto* const state = new State();
  return *state;
}

// Waits at most so many seconds until all departures are over.
PyObject* AwaitDepartures(PyObject* /*module*/, PyObject* seconds) {
  absl::Duration timeout;
  if (!Read(seconds, "seconds", &timeout)) return nullptr;
  if (Forked()) return WriteNone();
  {
    const GilRelease release;
    State& state = Departures();
    MutexLock lock(&state.mutex);
    const auto over = [&state]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return state.running == 0; };
    state.mutex.AwaitWithTimeout(absl::Condition(&over), timeout);
  }
  return WriteNone();
}

PyObject* Begin(PyObject* /*module*/, PyObject* /*none*/) {
  BeginExit();
  return WriteNone();
}

// Raises FailedPrecondition in a forked child: for calls of Python that would wait for its threads.
PyObject* RefuseInChild(PyObject* /*module*/, PyObject* /*none*/) {
  return RaiseIfForked() ? nullptr : WriteNone();
}

PyMethodDef functions[] = {Function<&RefuseInChild>("raise_if_forked", METH_NOARGS),
                           Function<&Begin>("begin_exit", METH_NOARGS),
                           Function<&AwaitDepartures>("await_departures"), {}};

}  // namespace

std::shared_ptr<void> BeginDeparture() {
  Departures().Add(1);
  return {nullptr, [](void*) { Departures().Add(-1); }};
}

bool AddDepartures(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

}  // namespace cohort::python
