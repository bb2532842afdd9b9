// The name of this host.
#ifndef COHORT_BASE_HOST_NAME_H_
#define COHORT_BASE_HOST_NAME_H_

#include <unistd.h>

#include <string>

namespace cohort {

inline std::string HostName() {
  char name[257] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

}  // namespace cohort

#endif  // COHORT_BASE_HOST_NAME_H_
