#include "client/python/core/blocking.h"

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "client/python/core/convert.h"
#include "client/python/core/errors.h"

namespace cohort::python {
namespace {

std::atomic<bool> forked{false};

// The calls that have not returned, with the interpreter's lock.
Blocking* newest = nullptr;

// Once the main thread has imported the module, or made a call.
PyThreadState* main_thread = nullptr;

// How many calls have returned that EndCallsOf has ended.
struct Returned {
  Mutex mutex;
  CondVar changed;
  uint64_t count ABSL_GUARDED_BY(mutex) = 0;
};
Returned& ReturnedCalls() {
  static auto* const returned = new Returned();
  return *returned;
}

// Whether this is the first thread of the process. Python handles signals on that one. With the
// interpreter's lock. (A thread-local variable of a library costs more.)
bool OnMainThread() {
  PyThreadState* const self = PyThreadState_Get();
  if (main_thread == nullptr && syscall(SYS_gettid) == getpid()) main_thread = self;
  return self == main_thread;
}

}  // namespace

void NoteImport() { static_cast<void>(OnMainThread()); }

void NoteUse() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  static_cast<void>(once);
}

bool Forked() { return forked.load(std::memory_order_relaxed); }

bool RaiseIfForked() {
  if (!Forked()) return false;
  python::Raise(absl::FailedPreconditionError(
      "this process was forked after its parent had used cohort: the threads and connections of "
      "cohort stayed with the parent. Fork before that, or use the start method \"spawn\""));
  return true;
}

Blocking::Blocking(End end, const void* object)
    : end_(end), object_(object), on_main_thread_(OnMainThread()), older_(newest) {
  NoteUse();
  raised_ = RaiseIfForked();
  if (raised_) return;
  if (newest != nullptr) newest->newer_ = this;
  newest = this;
  raised_ = PyErr_CheckSignals() != 0;
}

Blocking::~Blocking() {
  // The stacks of the parent's threads, and so their calls, are gone in a child.
  if (Forked()) return;
  (newer_ == nullptr ? newest : newer_->older_) = older_;
  if (older_ != nullptr) older_->newer_ = newer_;
  if (!ended_) return;
  Returned& returned = ReturnedCalls();
  MutexLock lock(&returned.mutex);
  ++returned.count;
  returned.changed.SignalAll();
}

void Blocking::RunHandlers() {
  // The exception of the first one counts.
  if (raised_ || PyErr_CheckSignals() == 0) return;
  raised_ = true;
  exception_ = TakeRaised();
  end_(absl::CancelledError(
      absl::StrCat("a signal handler raised ", DescribeException(exception_.get()))));
}

PyObject* Blocking::Raise(const absl::Status& status) {
  if (exception_) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception_.get())), exception_.get());
    return nullptr;
  }
  if (PyErr_CheckSignals() != 0) return nullptr;
  return python::Raise(status);
}

bool Blocking::IsWithinCallOf(const void* object) {
  if (newest == nullptr || Forked() || !OnMainThread()) return false;
  const std::thread::id self = std::this_thread::get_id();
  for (const Blocking* call = newest; call != nullptr; call = call->older_) {
    if (call->object_ == object && call->thread_ == self) return true;
  }
  return false;
}

void Blocking::EndCallsOf(const void* object, const absl::Status& reason, absl::Duration timeout) {
  if (Forked()) return;
  const Instant deadline = Clock::Steady().Now() + timeout;
  const std::thread::id self = std::this_thread::get_id();
  Returned& returned = ReturnedCalls();
  while (true) {
    uint64_t seen = 0;
    {
      MutexLock lock(&returned.mutex);
      seen = returned.count;
    }
    bool waits = false;
    for (Blocking* call = newest; call != nullptr; call = call->older_) {
      if (call->object_ != object) continue;
      if (!std::exchange(call->ended_, true)) call->end_(reason);
      waits = waits || call->thread_ != self;
    }
    if (!waits) return;
    const GilRelease release;
    MutexLock lock(&returned.mutex);
    while (returned.count == seen) {
      const absl::Duration left = deadline - Clock::Steady().Now();
      if (left <= absl::ZeroDuration()) return;
      returned.changed.WaitWithTimeout(&returned.mutex, left);
    }
  }
}

}  // namespace cohort::python
