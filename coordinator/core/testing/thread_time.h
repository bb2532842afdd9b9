// The processor time of this thread, for tests of how a cost grows.
#ifndef COHORT_COORDINATOR_CORE_TESTING_THREAD_TIME_H_
#define COHORT_COORDINATOR_CORE_TESTING_THREAD_TIME_H_

#include <time.h>

#include "absl/time/time.h"

namespace cohort::coordinator {

inline absl::Duration ThreadTime() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_THREAD_TIME_H_
