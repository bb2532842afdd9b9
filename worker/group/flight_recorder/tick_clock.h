// The time of a call, for the price of one read of the processor's counter.
#ifndef COHORT_WORKER_GROUP_FLIGHT_RECORDER_TICK_CLOCK_H_
#define COHORT_WORKER_GROUP_FLIGHT_RECORDER_TICK_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort::worker {

// One thread at a time.
class TickClock {
 public:
  // Reads a counter that all processors of a machine share; without one, nanoseconds.
  static int64_t Ticks() {
#if defined(__x86_64__)
    return static_cast<int64_t>(__builtin_ia32_rdtsc());
#else
    return absl::ToUnixNanos(Clock::Steady().Now());
#endif
  }

  // Returns the steady time at `ticks`, which the caller has just read, or up to some tens of
  // microseconds before. A deadline computed from it is early by as much.
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

#endif  // COHORT_WORKER_GROUP_FLIGHT_RECORDER_TICK_CLOCK_H_
