// The time, at the price of a look at the processor's counter.
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

  // The steady time at `ticks`, which are this moment's. Between two looks at the steady clock,
  // some milliseconds apart, it is reckoned from the ticks.
  Instant At(int64_t ticks) {
    const int64_t since = ticks - base_ticks_;
    if (since < 0 || since > span_) return Look(ticks);
    return base_ + absl::Nanoseconds(static_cast<int64_t>(static_cast<double>(since) * tick_));
  }

 private:
  // How far ahead is reckoned, in ticks: 2 to 20 ms by what processors there are.
  static constexpr int64_t kSpan = 10'000'000;

  Instant Look(int64_t ticks) {
    const Instant now = Clock::Steady().Now();
    const int64_t since = ticks - first_ticks_;
    if (first_ticks_ == 0 || since <= 0) {
      first_ticks_ = ticks;
      first_ = now;
    } else if (since > kSpan) {
      tick_ = absl::ToDoubleNanoseconds(now - first_) / static_cast<double>(since);
      span_ = kSpan;
    }
    base_ticks_ = ticks;
    base_ = now;
    return now;
  }

  int64_t first_ticks_ = 0;  // 0: it has not looked yet
  Instant first_;
  int64_t base_ticks_ = 0;
  Instant base_;
  double tick_ = 0;    // in nanoseconds
  int64_t span_ = -1;  // nothing is reckoned until the length of a tick is known
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TICK_CLOCK_H_
