// Work that a thread does in the middle of its waits: the signal handlers of an interpreter.
//
// An interpreter runs handlers of signals on its main thread, between two steps. A thread that
// waits in this library makes no step. So its waits call a function of the interpreter about twenty
// times a second. The function may end the call for which the thread waits; otherwise the wait
// continues.
//
//   const WaitHook hook([&] { if (PyErr_CheckSignals() != 0) cancellation.Cancel(...); });
//   group.Barrier();  // calls it while it waits
#ifndef COHORT_BASE_THREADS_WAIT_HOOK_H_
#define COHORT_BASE_THREADS_WAIT_HOOK_H_

#include <algorithm>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort {

// Belongs to the thread that makes it. The hook made last counts.
class WaitHook {
 public:
  // `function` outlives the hook. A wait calls it on the waiting thread, and holds none of the locks
  // that this call of the library or another one needs, other than the turn of the group's call.
  explicit WaitHook(absl::FunctionRef<void()> function)
      : function_(function), outer_(current_) {
    current_ = this;
  }
  ~WaitHook() { current_ = outer_; }
  WaitHook(const WaitHook&) = delete;
  WaitHook& operator=(const WaitHook&) = delete;

  // That of the calling thread, or null.
  static WaitHook* Current() { return current_; }

  // Within `function`, waits have no hook, unless it makes one.
  void Run() const {
    WaitHook* const hook = std::exchange(current_, nullptr);
    function_();
    current_ = hook;
  }

 private:
  const absl::FunctionRef<void()> function_;
  WaitHook* const outer_;
  static inline thread_local WaitHook* current_ = nullptr;
};

// One wait, which sleeps several times. Without a hook it costs nothing.
class HookedWait {
 public:
  HookedWait() : hook_(WaitHook::Current()) {
    if (hook_ != nullptr) due_ = Clock::Steady().Now() + kPeriod;
  }

  bool hooked() const { return hook_ != nullptr; }
  // How long to sleep at a time, at most `left`.
  absl::Duration Shorten(absl::Duration left) const {
    return hook_ == nullptr ? left : std::min(left, kPeriod);
  }
  // Whether the hook has not run for a period. The caller then releases its locks, and calls Run.
  bool due() const { return hook_ != nullptr && Clock::Steady().Now() >= due_; }
  void Run() {
    hook_->Run();
    due_ = Clock::Steady().Now() + kPeriod;
  }
  void RunIfDue() {
    if (due()) Run();
  }

 private:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(50);

  WaitHook* const hook_;
  Instant due_;
};

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_WAIT_HOOK_H_
