#include "base/threads/timed_mutex.h"

#include <algorithm>

#include "absl/time/clock.h"
#include "base/threads/wait_hook.h"

namespace cohort {
namespace {

// The standard library's type of deadlines does not hold longer ones.
constexpr absl::Duration kLongest = absl::Hours(24);

// Returns whether this thread has got the lock.
bool LockFor(std::timed_mutex& mutex, absl::Duration longest) {
#if defined(__SANITIZE_THREAD__)
  // GCC's ThreadSanitizer does not know the call of the C library that waits by the steady clock.
  const Instant end = Clock::Steady().Now() + longest;
  while (!mutex.try_lock()) {
    if (Clock::Steady().Now() >= end) return false;
    absl::SleepFor(absl::Microseconds(100));
  }
  return true;
#else
  return mutex.try_lock_for(absl::ToChronoNanoseconds(longest));
#endif
}

}  // namespace

bool TimedMutex::AwaitFor(absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  HookedWait hooked;
  while (true) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    const absl::Duration longest = std::clamp(left, absl::ZeroDuration(), hooked.Shorten(kLongest));
    if (cohort::LockFor(mutex_, longest)) return true;
    if (Clock::Steady().Now() >= deadline) return false;
    hooked.RunIfDue();
  }
}

}  // namespace cohort
