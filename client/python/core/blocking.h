// Calls that block in C++: without the interpreter's lock, and ended by SIGINT and SIGTERM.
//
// Python runs its signal handlers on the main thread, between two steps of the interpreter. A
// thread that waits in C++ makes no step. So a handler of this file runs before Python's, and wakes
// a thread that ends the call.
#ifndef COHORT_CLIENT_PYTHON_CORE_BLOCKING_H_
#define COHORT_CLIENT_PYTHON_CORE_BLOCKING_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// Whether this process was forked from one that had made a call. It has none of the threads that
// the objects of its parent need, so it leaves them as they are.
bool Forked();
// In such a child: sets FailedPrecondition and returns true. For methods that do not block, but
// would change what the parent's group does.
bool RaiseIfForked();

// A call of C++ that blocks, as Python sees it: while it lives, a signal ends the call, and other
// threads of Python run. On other threads than the main one no signal ends a call.
//
//   const Blocking blocking([&](const absl::Status& reason) { cancellation.Cancel(reason); });
//   if (blocking.raised()) return nullptr;
//   status = blocking.Run([&] { return group.Barrier(); });
//   if (!status.ok()) return blocking.Raise(status);
class Blocking {
 public:
  // `end` ends the call soon. Another thread runs it, once for each signal. It outlives this.
  // `is_frequent`: the call takes less than a microsecond, most of the time. Then a handler of a
  // signal that the program sets takes effect at most some milliseconds later.
  explicit Blocking(absl::FunctionRef<void(const absl::Status& reason)> end,
                    bool is_frequent = false);
  // Does not run while `end` runs.
  ~Blocking();
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

  // Whether there is an exception instead of a call: of a signal's handler, or because this process
  // was forked (FailedPrecondition), or has no descriptor or thread left (ResourceExhausted).
  bool raised() const { return raised_; }
  // Runs `call` without the interpreter's lock.
  template <typename Call>
  auto Run(const Call& call) const {
    const GilRelease release;
    return call();
  }
  // Sets the exception of a signal's handler, or else that of `status`, and returns null.
  PyObject* Raise(const absl::Status& status) const;

 private:
  const absl::FunctionRef<void(const absl::Status& reason)> end_;
  const bool on_main_thread_;
  bool raised_ = false;
  // A handler of a signal may make calls, too, before the call that it interrupted goes on.
  const absl::FunctionRef<void(const absl::Status& reason)>* outer_end_ = nullptr;
  uint64_t outer_call_ = 0;
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_BLOCKING_H_
