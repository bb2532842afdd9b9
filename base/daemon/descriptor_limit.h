// How many descriptors a daemon may have open.
#ifndef COHORT_BASE_DAEMON_DESCRIPTOR_LIMIT_H_
#define COHORT_BASE_DAEMON_DESCRIPTOR_LIMIT_H_

#include <sys/resource.h>

namespace cohort {

// Takes as many as the system allows. The usual default of 1024 is there for programs that call
// select, which a daemon does not.
inline void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_DESCRIPTOR_LIMIT_H_
