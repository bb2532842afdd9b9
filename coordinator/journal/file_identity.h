// Detects that another program removed, replaced or truncated a file that this process has open.
#ifndef COHORT_COORDINATOR_JOURNAL_FILE_IDENTITY_H_
#define COHORT_COORDINATOR_JOURNAL_FILE_IDENTITY_H_

#include <sys/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cohort::coordinator {

// Thread-compatible.
class FileIdentity {
 public:
  // Remembers the device and the inode of the file that `path` names now; follows links.
  static absl::StatusOr<FileIdentity> Of(const std::string& path);

  // Returns the size of the file if `path` still names it and it has at least `min_bytes`. Costs
  // one stat. Errors: INTERNAL (it does not; the message has the path and the file that it names
  // now).
  absl::StatusOr<off_t> Check(off_t min_bytes) const;

  const std::string& path() const { return path_; }

 private:
  FileIdentity(std::string path, dev_t device, ino_t inode);

  std::string path_;
  dev_t device_;
  ino_t inode_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_FILE_IDENTITY_H_
