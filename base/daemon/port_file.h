// The file from which scripts read the addresses of a daemon that chose its port.
#ifndef COHORT_BASE_DAEMON_PORT_FILE_H_
#define COHORT_BASE_DAEMON_PORT_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace cohort {

// Writes one address in each line. A reader sees either all of them or no file. Errors: UNAVAILABLE
// (names the file).
absl::Status WritePortFile(const std::string& path, const std::vector<std::string>& addresses);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_PORT_FILE_H_
