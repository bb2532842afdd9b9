// How scripts learn where a daemon listens that chose its port.
#ifndef COHORT_BASE_DAEMON_PORT_FILE_H_
#define COHORT_BASE_DAEMON_PORT_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cohort {

// An address in each line. A reader sees all of them or no file. Errors: UNAVAILABLE, naming the
// file.
absl::Status WritePortFile(const std::string& path, const std::vector<std::string>& addresses);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_PORT_FILE_H_
