#include "worker/cuda/streams/poll_until.h"

#include <sched.h>

#include <algorithm>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/threads/wait_hook.h"

namespace cohort::worker::cuda {
namespace {

// The time without sleeps: waking up takes as long.
constexpr absl::Duration kAwake = absl::Microseconds(50);
constexpr absl::Duration kLongestPause = absl::Microseconds(500);

}  // namespace

absl::StatusOr<bool> PollUntil(absl::FunctionRef<absl::StatusOr<bool>()> is_done,
                               Instant deadline) {
  const Instant start = Clock::Steady().Now();
  HookedWait hooked;
  for (;;) {
    COHORT_ASSIGN_OR_RETURN(const bool done, is_done());
    if (done) return true;
    const Instant now = Clock::Steady().Now();
    if (now >= deadline) return false;
    if (now - start < kAwake) {
      sched_yield();
    } else {
      hooked.RunIfDue();
      absl::SleepFor(std::min({(now - start) / 8, kLongestPause, deadline - now}));
    }
  }
}

}  // namespace cohort::worker::cuda
