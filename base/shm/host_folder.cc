#include "base/shm/host_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/peer_user.h"
#include "base/unique_fd.h"

namespace cohort::shm {
namespace {

constexpr char kVariable[] = "COHORT_HOST_FOLDER";
// Any user may fill the folder, so a look for stale sockets ends after so many entries.
constexpr int kMostEntries = 4096;

// Whether no process has the socket. Does not disturb a process that has it: the probe is of
// another type than the socket, so the kernel answers by itself.
bool IsStale(const sockaddr_un& address) {
  const UniqueFd probe(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return probe.get() >= 0 &&
         connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0 &&
         errno == ECONNREFUSED;
}

}  // namespace

absl::StatusOr<HostFolder> HostFolder::Open(const std::string& path) {
  const char* const variable = std::getenv(kVariable);
  HostFolder folder;
  folder.path_ = path;
  if (path.empty()) {
    if (variable == nullptr || *variable == '\0') return folder;
    folder.path_ = variable;
  }
  folder.origin_ =
      absl::StrCat(path.empty() ? kVariable : "host_folder", " is \"", folder.path_, "\"");
  const auto malformed = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat(folder.origin_, ": ", why));
  };
  if (folder.path_[0] != '/') return malformed("expected a path that begins with /");
  if (folder.path_.size() > kMaxPath) {
    return malformed(absl::StrCat("expected a path of at most ", kMaxPath, " bytes, got ",
                                  folder.path_.size(), ": the addresses of sockets are short"));
  }
  struct stat found = {};
  if (stat(folder.path_.c_str(), &found) != 0) {
    return absl::InvalidArgumentError(absl::ErrnoToStatus(errno, folder.origin_).message());
  }
  if (!S_ISDIR(found.st_mode)) return malformed("it is not a folder");
  // Processes of different users share no memory. They find out before they wait for each other.
  folder.id_ = absl::StrCat(found.st_dev, ":", found.st_ino, "/", UserOutside());
  return folder;
}

std::string HostFolder::AddressOf(absl::string_view name, absl::string_view id) const {
  // No name leads out of the folder.
  const std::string file(name.substr(name.rfind('/') + 1));
  return !empty() && id == id_ ? absl::StrCat(path_, "/", file) : file;
}

absl::Status HostFolder::Failed(absl::string_view what, int error) const {
  const absl::StatusCode code = error == ENOSPC || error == EDQUOT || error == ENOMEM
                                    ? absl::StatusCode::kResourceExhausted
                                    : absl::StatusCode::kFailedPrecondition;
  return absl::Status(code,
                      absl::ErrnoToStatus(error, absl::StrCat(origin_, ": ", what)).message());
}

void HostFolder::RemoveStale(absl::Duration least_age) const {
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(opendir(path_.c_str()), &closedir);
  if (entries == nullptr) return;
  const absl::Time now = absl::Now();
  const int folder = dirfd(entries.get());
  for (int i = 0; i < kMostEntries; ++i) {
    const dirent* const entry = readdir(entries.get());
    if (entry == nullptr) return;
    const absl::string_view name = entry->d_name;
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    struct stat found = {};
    if (!absl::StartsWith(name, kSocketPrefix) ||
        path_.size() + 1 + name.size() >= sizeof(address.sun_path) ||
        fstatat(folder, entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(found.st_mode) || found.st_uid != geteuid() ||
        now - absl::TimeFromTimespec(found.st_ctim) < least_age) {
      continue;
    }
    const std::string path = absl::StrCat(path_, "/", name);
    std::memcpy(address.sun_path, path.data(), path.size());
    if (IsStale(address)) unlinkat(folder, entry->d_name, 0);
  }
}

}  // namespace cohort::shm
