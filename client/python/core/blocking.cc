#include "client/python/core/blocking.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "base/threads/mutex.h"
#include "base/threads/thread.h"
#include "client/python/core/errors.h"

namespace cohort::python {
namespace {

using End = absl::FunctionRef<void(const absl::Status& reason)>;

constexpr int kSignals[] = {SIGINT, SIGTERM};

struct State {
  int read_end = -1;
  int write_end = -1;
  std::atomic<bool> forked{false};
  // The tick of the system's clock in which the handlers were last looked at.
  timespec checked = {};
  // Python's handlers, by the number of the signal.
  struct sigaction before[32] = {};

  // The number of the main thread's call; 0 between calls. A signal ends the call during which it
  // came, and no later one.
  std::atomic<uint64_t> call{0};
  uint64_t calls = 0;

  Mutex mutex;
  const End* end ABSL_GUARDED_BY(mutex) = nullptr;  // of `call`
};

// A message from the handler to the thread.
struct Notice {
  uint64_t call;
  int64_t signal;
};

// Made by the first call, so that a process may be forked after the import. Lives until the process
// ends. Changes with the interpreter's lock.
State* state = nullptr;

// Runs in place of Python's handler, and before it. Python's handler only takes note of the signal.
void OnSignal(int number, siginfo_t* info, void* context) {
  const int kept = errno;
  const Notice notice = {state->call, number};
  // If the pipe is full, its reader has enough to do.
  if (notice.call != 0 && !state->forked && write(state->write_end, &notice, sizeof(notice)) < 0) {
    errno = 0;
  }
  errno = kept;
  const struct sigaction& before = state->before[number];
  if ((before.sa_flags & SA_SIGINFO) != 0) {
    before.sa_sigaction(number, info, context);
  } else {
    before.sa_handler(number);
  }
}

// Whether the handler is one that Python has set: it lies in the interpreter's code. A handler of
// another library may call the one before it, so this file leaves it alone.
bool IsPythons(const struct sigaction& action) {
  Dl_info interpreter, handler;
  void* const function = reinterpret_cast<void*>(action.sa_handler);
  return dladdr(reinterpret_cast<void*>(&PyErr_CheckSignals), &interpreter) != 0 &&
         dladdr(function, &handler) != 0 && handler.dli_fbase == interpreter.dli_fbase;
}

// Puts OnSignal before each handler that the program has set in Python.
void ChainHandlers() {
  for (const int number : kSignals) {
    struct sigaction current;
    if (sigaction(number, nullptr, &current) != 0) continue;
    if (current.sa_handler == SIG_DFL || current.sa_handler == SIG_IGN ||
        current.sa_sigaction == OnSignal || !IsPythons(current)) {
      continue;
    }
    state->before[number] = current;
    current.sa_flags |= SA_SIGINFO;
    current.sa_sigaction = OnSignal;
    sigaction(number, &current, nullptr);
  }
}

// The handlers were looked at in the same tick of the clock.
bool HandlersAreFresh() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  if (now.tv_nsec == state->checked.tv_nsec && now.tv_sec == state->checked.tv_sec) return true;
  state->checked = now;
  return false;
}

void ReadSignals(State& state) {
  Notice notice;
  while (true) {
    const ssize_t size = read(state.read_end, &notice, sizeof(notice));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return;
    MutexLock lock(&state.mutex);
    if (notice.call != state.call) continue;
    (*state.end)(absl::CancelledError(
        absl::StrCat("this process got ", notice.signal == SIGINT ? "SIGINT" : "SIGTERM")));
  }
}

// Errors: RESOURCE_EXHAUSTED.
absl::Status WatchSignals() {
  auto made = std::make_unique<State>();
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return absl::ResourceExhaustedError(absl::StrCat("no pipe for signals: ", strerror(errno)));
  }
  made->read_end = ends[0];
  made->write_end = ends[1];
  fcntl(made->write_end, F_SETFL, O_NONBLOCK);
  absl::Status started =
      StartDetachedThread("cohort-signals", [made = made.get()] { ReadSignals(*made); });
  if (!started.ok()) {
    close(ends[0]);
    close(ends[1]);
    return started;
  }
  state = made.release();
  pthread_atfork(nullptr, nullptr, [] { state->forked = true; });
  return absl::OkStatus();
}

// Whether this is the first thread of the process. Python handles signals on that one.
bool OnMainThread() {
  static const thread_local bool is_main = syscall(SYS_gettid) == getpid();
  return is_main;
}

}  // namespace

bool Forked() { return state != nullptr && state->forked; }

bool RaiseIfForked() {
  if (!Forked()) return false;
  python::Raise(absl::FailedPreconditionError(
      "this process was forked after its parent had used cohort: the threads and connections of "
      "cohort stayed with the parent. Fork before that, or use the start method \"spawn\""));
  return true;
}

Blocking::Blocking(End end, bool is_frequent)
    : end_(end), on_main_thread_(OnMainThread()) {
  if (state == nullptr) {
    if (const absl::Status watched = WatchSignals(); !watched.ok()) {
      python::Raise(watched);
      raised_ = true;
      return;
    }
  }
  raised_ = RaiseIfForked();
  if (raised_) return;
  if (!on_main_thread_) return;
  {
    MutexLock lock(&state->mutex);
    outer_end_ = state->end;
    outer_call_ = state->call;
    state->end = &end_;
    state->call = ++state->calls;
  }
  if (!is_frequent || !HandlersAreFresh()) ChainHandlers();
  // A signal that came before this line may have found no call to end.
  raised_ = PyErr_CheckSignals() != 0;
}

Blocking::~Blocking() {
  if (!on_main_thread_ || state == nullptr || state->forked) return;
  MutexLock lock(&state->mutex);
  state->end = outer_end_;
  state->call = outer_call_;
}

PyObject* Blocking::Raise(const absl::Status& status) const {
  if (PyErr_CheckSignals() != 0) return nullptr;
  return python::Raise(status);
}

}  // namespace cohort::python
