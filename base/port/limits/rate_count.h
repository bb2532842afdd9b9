// Counts events against a rate per second. A burst may have as many events as the rate allows in a
// second.
#ifndef COHORT_BASE_PORT_LIMITS_RATE_COUNT_H_
#define COHORT_BASE_PORT_LIMITS_RATE_COUNT_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort {

// Thread-compatible.
class RateCount {
 public:
  // Counts one event. Returns false if it is over the rate. A suspect, whose address has broken a
  // limit before, may have a burst of a sixteenth.
  bool Add(Instant now, double per_second, bool suspect) {
    constexpr double kSuspectShare = 16;
    if (since_ != absl::InfinitePast()) {
      level_ -= absl::ToDoubleSeconds(now - since_) * per_second;
    }
    since_ = now;
    level_ = std::max(level_, 0.0) + 1;
    return level_ <= per_second / (suspect ? kSuspectShare : 1);
  }
  // How many events count at `now`.
  double Level(Instant now, double per_second) const {
    if (since_ == absl::InfinitePast()) return 0;
    return std::max(level_ - absl::ToDoubleSeconds(now - since_) * per_second, 0.0);
  }
  // Subtracts `count` events.
  void Excuse(double count) { level_ = std::max(level_ - count, 0.0); }

 private:
  double level_ = 0;
  Instant since_ = absl::InfinitePast();
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_LIMITS_RATE_COUNT_H_
