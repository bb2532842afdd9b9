#include "coordinator/journal/file_identity.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::coordinator {

FileIdentity::FileIdentity(std::string path, dev_t device, ino_t inode)
    : path_(std::move(path)), device_(device), inode_(inode) {}

absl::StatusOr<FileIdentity> FileIdentity::Of(const std::string& path) {
  struct stat facts = {};
  if (stat(path.c_str(), &facts) != 0) {
    return absl::InternalError(
        absl::StrCat("file ", path, " is not there: ", std::strerror(errno)));
  }
  return FileIdentity(path, facts.st_dev, facts.st_ino);
}

absl::StatusOr<off_t> FileIdentity::Check(off_t min_bytes) const {
  struct stat facts = {};
  if (stat(path_.c_str(), &facts) != 0) {
    return absl::InternalError(absl::StrCat(
        "file ", path_, " was removed or moved while it was open: ", std::strerror(errno)));
  }
  if (facts.st_dev != device_ || facts.st_ino != inode_) {
    return absl::InternalError(absl::StrCat(
        "file ", path_, " was replaced while it was open: it was inode ", inode_, " of device ",
        device_, ", and is inode ", facts.st_ino, " of device ", facts.st_dev));
  }
  if (facts.st_size < min_bytes) {
    return absl::InternalError(absl::StrCat("file ", path_, " was cut while it was open: it had ",
                                            min_bytes, " bytes, and has ", facts.st_size));
  }
  return facts.st_size;
}

}  // namespace cohort::coordinator
