// Whether a file has changed since it was read.
#ifndef COHORT_BASE_FILE_STAMP_H_
#define COHORT_BASE_FILE_STAMP_H_

#include <string>

#include "absl/status/statusor.h"

namespace cohort {

// A text that changes when the file is replaced or written or gets another mode, also behind a
// symbolic link.
// Errors: INVALID_ARGUMENT with the path and the reason.
absl::StatusOr<std::string> FileStamp(const std::string& path);

}  // namespace cohort

#endif  // COHORT_BASE_FILE_STAMP_H_
