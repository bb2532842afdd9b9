// Files that are read again when they change: policies, tokens, keys, certificates. A pipe, a
// device or a file without end in place of one must not stop its reader.
#ifndef COHORT_BASE_FILE_STAMP_H_
#define COHORT_BASE_FILE_STAMP_H_

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"

namespace cohort {

// Larger files are errors.
inline constexpr size_t kMaxWatchedFileBytes = size_t{16} << 20;

// A text that changes when the file is replaced or written or gets another mode, also behind a
// symbolic link.
// Errors: INVALID_ARGUMENT with the path and the reason, such as a file that is not a regular one.
absl::StatusOr<std::string> FileStamp(const std::string& path);

// The bytes of the file, at most `most`. Never waits for them.
// Errors: INVALID_ARGUMENT with the reason alone.
absl::StatusOr<std::string> ReadWatchedFile(const std::string& path,
                                            size_t most = kMaxWatchedFileBytes);

}  // namespace cohort

#endif  // COHORT_BASE_FILE_STAMP_H_
