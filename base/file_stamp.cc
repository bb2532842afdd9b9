#include "base/file_stamp.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"

namespace cohort {
namespace {

absl::Status SystemError() { return absl::InvalidArgumentError(std::strerror(errno)); }

absl::Status Check(const struct stat& found, size_t most) {
  if (!S_ISREG(found.st_mode)) return absl::InvalidArgumentError("is not a regular file");
  if (static_cast<uint64_t>(found.st_size) <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("is larger than ", most, " bytes"));
}

}  // namespace

absl::StatusOr<std::string> FileStamp(const std::string& path) {
  struct stat found = {};
  const absl::Status status = stat(path.c_str(), &found) != 0
                                  ? SystemError()
                                  : Check(found, kMaxWatchedFileBytes);
  if (!status.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", status.message()));
  }
  return absl::StrCat(found.st_dev, ":", found.st_ino, ":", found.st_size, ":",
                      found.st_mtim.tv_sec, ".", found.st_mtim.tv_nsec, ":", found.st_ctim.tv_sec,
                      ".", found.st_ctim.tv_nsec);
}

absl::StatusOr<std::string> ReadWatchedFile(const std::string& path, size_t most) {
  // A pipe without a writer would block open(2) otherwise.
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY));
  if (file.get() < 0) return SystemError();
  struct stat found = {};
  if (fstat(file.get(), &found) != 0) return SystemError();
  COHORT_RETURN_IF_ERROR(Check(found, most));
  // One byte more than it has, to see whether it grows.
  std::string bytes(static_cast<size_t>(found.st_size) + 1, '\0');
  size_t have = 0;
  while (have < bytes.size()) {
    const ssize_t count = read(file.get(), &bytes[have], bytes.size() - have);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError();
    if (count == 0) break;
    have += static_cast<size_t>(count);
  }
  if (have == bytes.size()) return absl::InvalidArgumentError("grows while it is read");
  bytes.resize(have);
  return bytes;
}

}  // namespace cohort
