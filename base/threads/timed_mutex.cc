#include "base/threads/timed_mutex.h"

#include <algorithm>

#include "base/threads/wait_hook.h"

namespace cohort {
namespace {

// The standard library's type of deadlines does not hold longer ones.
constexpr absl::Duration kLongest = absl::Hours(24);

}  // namespace

bool TimedMutex::AwaitFor(absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  HookedWait hooked;
  while (true) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    const absl::Duration longest = std::clamp(left, absl::ZeroDuration(), hooked.Shorten(kLongest));
    if (mutex_.try_lock_for(absl::ToChronoNanoseconds(longest))) return true;
    if (Clock::Steady().Now() >= deadline) return false;
    hooked.RunIfDue();
  }
}

}  // namespace cohort
