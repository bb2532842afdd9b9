// Calls that block in C++: without the interpreter's lock, and with the handlers of signals.
//
// Python runs handlers of signals on its main thread, between two steps of the interpreter. A thread
// that waits in C++ makes no step, so its waits run the handlers (base/threads/wait_hook.h). A
// handler that returns lets the call continue. One that raises ends the call with its exception.
#ifndef COHORT_CLIENT_PYTHON_CORE_BLOCKING_H_
#define COHORT_CLIENT_PYTHON_CORE_BLOCKING_H_

#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/threads/wait_hook.h"
#include "client/python/core/python_api.h"

namespace cohort::python {

// The module is imported: calls of other threads need not look for the main one then.
void NoteImport();
// This process uses the library from now on. A process may be forked before that.
void NoteUse();
// Whether this process was forked from one that had used the library. It has none of the threads that
// the objects of its parent need, so it leaves them as they are.
bool Forked();
// In such a child: sets FailedPrecondition and returns true.
bool RaiseIfForked();

// A call of C++ that blocks, as Python sees it: while it lives, handlers of signals and other threads
// of Python run. Made and destroyed with the interpreter's lock.
//
//   Blocking blocking([&](const absl::Status& reason) { cancellation.Cancel(reason); }, &group);
//   if (blocking.raised()) return nullptr;
//   const absl::Status status = blocking.Run([&] { return group.Barrier(); });
//   return status.ok() && !blocking.raised() ? WriteNone() : blocking.Raise(status);
class Blocking {
 public:
  using End = absl::FunctionRef<void(const absl::Status& reason)>;

  // `end` ends the call soon, because a handler has raised an exception, or another thread closes
  // `object`, to which the call belongs. It outlives this, and must not block.
  explicit Blocking(End end, const void* object = nullptr);
  ~Blocking();
  Blocking(const Blocking&) = delete;
  Blocking& operator=(const Blocking&) = delete;

  // Before the call: whether there is an exception instead of it, of a signal's handler, or because
  // this process was forked (FailedPrecondition). After it: whether a handler has raised; Raise sets
  // its exception.
  bool raised() const { return raised_; }
  // Runs `call` without the interpreter's lock.
  template <typename Call>
  auto Run(const Call& call) {
    GilRelease release;
    if (!on_main_thread_) return call();
    const auto handlers = [&] { release.Interrupt([&] { RunHandlers(); }); };
    const WaitHook hook(handlers);
    return call();
  }
  // Sets the exception of a signal's handler, or else that of `status`, and returns null.
  PyObject* Raise(const absl::Status& status);

  // Whether a signal's handler runs in the middle of a call of `object` on this thread.
  static bool IsWithinCallOf(const void* object);
  // Ends the calls of `object`, and waits without the interpreter's lock, at most `timeout`, until
  // they have returned. Does not wait for a call of this thread, in whose middle a handler runs.
  static void EndCallsOf(const void* object, const absl::Status& reason, absl::Duration timeout);

 private:
  void RunHandlers();

  const End end_;
  const void* const object_;
  const bool on_main_thread_;
  bool raised_ = false;
  bool ended_ = false;  // by EndCallsOf
  Object exception_;
  // The list of all calls of the process.
  Blocking* older_;
  Blocking* newer_ = nullptr;
  const std::thread::id thread_ = std::this_thread::get_id();
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_BLOCKING_H_
