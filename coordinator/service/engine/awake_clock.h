// A clock that stands still while the coordinator does not run.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_AWAKE_CLOCK_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_AWAKE_CLOCK_H_

#include <atomic>
#include <cstdint>

#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort::coordinator {

// A coordinator may be stopped (SIGSTOP, a debugger, no processor), or its machine suspended. When
// it continues, every lease has run out by other clocks, while keep-alives of live members are
// unread in its sockets. This clock leaves out every gap longer than `pause` in which no thread of
// the process has read it. A thread must therefore read it more often than that.
//
//   AwakeClock clock(Clock::Steady(), SuspendClock(), absl::Milliseconds(200));
//
// Thread-safe, and never goes backwards. A read costs one look at the steady clock; one in
// `pause` / 4 also takes a lock.
class AwakeClock final : public Clock {
 public:
  // `steady` may stand still while the machine is suspended; `suspend` must not. An infinite
  // `pause` leaves nothing out. Both clocks must outlive this one.
  AwakeClock(const Clock& steady, const Clock& suspend, absl::Duration pause);

  Instant Now() const override;
  // How long, so far, the process has not run or the machine was suspended. The true time is longer
  // by at most `pause` for each gap.
  absl::Duration asleep() const { return absl::Nanoseconds(asleep_.load()); }
  int64_t asleep_nanos() const { return asleep_.load(); }

 private:
  Instant Look() const ABSL_LOCKS_EXCLUDED(mutex_);

  const Clock& steady_;
  const Clock& suspend_;
  const int64_t pause_;  // nanoseconds, like all below

  // When the steady clock was last known to be read, and how much of it was left out by then. A
  // reader takes `left_out_`, then the time; it is of one piece if `sleeps_` has not changed.
  mutable std::atomic<int64_t> read_;
  mutable std::atomic<int64_t> left_out_{0};
  mutable std::atomic<int64_t> sleeps_{0};
  mutable std::atomic<int64_t> asleep_{0};
  mutable Mutex mutex_;
  mutable int64_t suspend_read_ ABSL_GUARDED_BY(mutex_);
};

// The steady time, the time of suspension included (CLOCK_BOOTTIME). Lives for ever.
const Clock& SuspendClock();

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_AWAKE_CLOCK_H_
