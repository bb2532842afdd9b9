#include "base/file_stamp.h"

#include <errno.h>
#include <sys/stat.h>

#include <cstring>

#include "absl/strings/str_cat.h"

namespace cohort {

absl::StatusOr<std::string> FileStamp(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return absl::StrCat(found.st_dev, ":", found.st_ino, ":", found.st_size, ":",
                      found.st_mtim.tv_sec, ".", found.st_mtim.tv_nsec, ":", found.st_ctim.tv_sec,
                      ".", found.st_ctim.tv_nsec);
}

}  // namespace cohort
