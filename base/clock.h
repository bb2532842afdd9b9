// The clock of waits, leases and expiries. It is steady, and callers pass it in, so that tests can
// control it.
#ifndef COHORT_BASE_CLOCK_H_
#define COHORT_BASE_CLOCK_H_

#include "absl/time/time.h"

namespace cohort {

// A point of steady time. Only differences are meaningful, not the calendar value.
using Instant = absl::Time;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Instant Now() const = 0;

  // The machine's steady clock; it is never destroyed.
  static const Clock& Steady();
};

}  // namespace cohort

#endif  // COHORT_BASE_CLOCK_H_
