// The time that waits, leases and expiries are measured in: steady, and handed in so that tests
// drive it.
#ifndef COHORT_BASE_CLOCK_H_
#define COHORT_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace cohort {

// A point of steady time. Differences mean something; the calendar value does not.
using Instant = absl::Time;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;

  // The machine's steady clock; lives for ever.
  static const Clock& Steady();
};

}  // namespace cohort

#endif  // COHORT_BASE_CLOCK_H_
