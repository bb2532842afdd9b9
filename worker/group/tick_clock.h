// The time of a call, at the price of a look at the processor's counter.
#ifndef COHORT_WORKER_GROUP_TICK_CLOCK_H_
#define COHORT_WORKER_GROUP_TICK_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort::worker {

// One thread at a time.
class TickClock {
 public:
  // Of a counter that all processors of a machine share; nanoseconds where there is none.
  static int64_t Ticks() {
#if defined(__x86_64__)
    return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
    return absl::ToUnixNanos(Clock::Steady().Now());
#endif
  }

  // The steady time at `ticks`, which are this moment's, or some tens of microseconds before: good
  // enough to reckon a deadline from, which then is that much early.
  Instant JustBefore(int64_t ticks) {
    if (static_cast<uint64_t>(ticks - last_ticks_) > kSpan) {
      last_ticks_ = ticks;
      last_ = Clock::Steady().Now();
    }
    return last_;
  }

 private:
  static constexpr uint64_t kSpan = 100'000;

  int64_t last_ticks_ = Ticks();
  Instant last_ = Clock::Steady().Now();
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TICK_CLOCK_H_
