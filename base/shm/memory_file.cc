#include "base/shm/memory_file.h"

#include <errno.h>
#include <sys/mman.h>

#include "absl/strings/str_cat.h"

namespace cohort::shm {
namespace {

// Newer than Debian's header.
constexpr unsigned kNoExecSeal = 0x8;

}  // namespace

int OpenMemoryFile(const std::string& label) {
  constexpr unsigned kFlags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = memfd_create(label.c_str(), kFlags | kNoExecSeal);
  if (fd >= 0 || errno != EINVAL) return fd;
  return memfd_create(label.c_str(), kFlags);
}

bool IsMemoryFileForbidden(int error) {
  return error == EPERM || error == EACCES || error == ENOSYS;
}

absl::Status NotShared(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " cannot be shared with another process: memfd_create is refused by a "
                         "seccomp filter or a security module; allow this system call"));
}

}  // namespace cohort::shm
