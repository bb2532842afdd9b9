// The limit of open descriptors of a daemon.
#ifndef COHORT_BASE_DAEMON_DESCRIPTOR_LIMIT_H_
#define COHORT_BASE_DAEMON_DESCRIPTOR_LIMIT_H_

#include <sys/resource.h>

namespace cohort {

// Raises the soft limit to the hard limit. The usual soft limit of 1024 protects programs that call
// select, which daemons do not.
inline void RaiseDescriptorLimit() {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_DESCRIPTOR_LIMIT_H_
