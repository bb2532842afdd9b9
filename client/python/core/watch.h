// The types KeyWatch and GroupWatch: watches of keys and of a group, in both modes.
#ifndef COHORT_CLIENT_PYTHON_CORE_WATCH_H_
#define COHORT_CLIENT_PYTHON_CORE_WATCH_H_

#include <memory>
#include <optional>

#include "absl/time/time.h"
#include "client/python/core/python_api.h"
#include "client/rendezvous/watcher.h"

namespace cohort::python {

// Returns a KeyWatch, or null with an exception.
PyObject* WriteKeyWatch(std::unique_ptr<client::KeyWatcher> watcher);

// An absent timeout is infinite.
inline client::WatcherOptions WatchOptions(int64_t from_revision,
                                           std::optional<absl::Duration> timeout,
                                           absl::Duration reconnect_timeout) {
  return {from_revision, timeout.value_or(absl::InfiniteDuration()), reconnect_timeout};
}

// Adds the types, and the function that watches a group, to the module. Returns false with an
// exception.
bool AddWatch(PyObject* module);

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_WATCH_H_
