#include "coordinator/service/engine/awake_clock.h"

#include <time.h>

#include <algorithm>
#include <limits>

namespace cohort::coordinator {
namespace {

class BootClock final : public Clock {
 public:
  Instant Now() const override {
    timespec now = {};
    clock_gettime(CLOCK_BOOTTIME, &now);
    return absl::TimeFromTimespec(now);
  }
};

}  // namespace

AwakeClock::AwakeClock(const Clock& steady, const Clock& suspend, absl::Duration pause)
    : steady_(steady),
      suspend_(suspend),
      pause_(pause == absl::InfiniteDuration() ? std::numeric_limits<int64_t>::max()
                                               : absl::ToInt64Nanoseconds(pause)),
      read_(absl::ToUnixNanos(steady.Now())),
      suspend_read_(absl::ToUnixNanos(suspend.Now())) {}

Instant AwakeClock::Now() const {
  for (;;) {
    const int64_t sleeps = sleeps_.load();
    const int64_t left_out = left_out_.load();
    const int64_t now = absl::ToUnixNanos(steady_.Now());
    if (now - read_.load() >= pause_ / 4) return Look();
    if (sleeps_.load() == sleeps) return absl::FromUnixNanos(now - left_out);
  }
}

Instant AwakeClock::Look() const {
  MutexLock lock(&mutex_);
  const int64_t now = absl::ToUnixNanos(steady_.Now());
  const int64_t gap = now - read_.load();
  const int64_t suspend_now = absl::ToUnixNanos(suspend_.Now());
  const int64_t longest = std::max(gap, suspend_now - suspend_read_);
  if (longest >= pause_) asleep_.store(asleep_.load() + longest - pause_);
  if (gap >= pause_) {
    // Other readers may have returned up to `pause` after the last look.
    left_out_.store(left_out_.load() + gap - pause_);
    sleeps_.store(sleeps_.load() + 1);
  }
  suspend_read_ = suspend_now;
  read_.store(now);
  return absl::FromUnixNanos(now - left_out_.load());
}

const Clock& SuspendClock() {
  // Never destroyed: threads that outlive main() look at it too.
  static const auto* const clock = new BootClock();
  return *clock;
}

}  // namespace cohort::coordinator
