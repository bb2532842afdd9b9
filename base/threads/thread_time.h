// The processor time that the calling thread has used. A look takes up to a microsecond.
//
// It is what a client costs the others of a thread. By a steady clock, a client pays for the time
// in which the machine ran something else.
#ifndef COHORT_BASE_THREADS_THREAD_TIME_H_
#define COHORT_BASE_THREADS_THREAD_TIME_H_

#include <time.h>

#include "absl/time/time.h"

namespace cohort {

inline absl::Duration ThreadTime() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return absl::DurationFromTimespec(now);
}

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_THREAD_TIME_H_
