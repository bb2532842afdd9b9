// The folder in which processes of one machine meet by Unix sockets, whatever their network
// namespaces.
#ifndef COHORT_BASE_SHM_HOST_FOLDER_H_
#define COHORT_BASE_SHM_HOST_FOLDER_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace cohort::shm {

// A Unix socket without a file ends at its network namespace; one with a file is reached wherever
// the file is. Containers see one folder at different paths, so processes tell each other its id()
// and the names of files, but no paths.
class HostFolder {
 public:
  // The most bytes of a path: that of a socket in it fits into the address of a socket.
  static constexpr size_t kMaxPath = 83;

  // No folder.
  HostFolder() = default;
  // The folder at `path`; if that is empty, at COHORT_HOST_FOLDER; if that is not set, no folder.
  // Errors: INVALID_ARGUMENT (not an absolute path, too long, missing, not a folder; names the
  // variable or host_folder, and the value).
  static absl::StatusOr<HostFolder> Open(const std::string& path = "");

  bool empty() const { return path_.empty(); }
  const std::string& path() const { return path_; }
  // Processes of one machine and user with the same text see the same folder. Empty: no folder.
  const std::string& id() const { return id_; }

  // Returns the address, as LocalSocket::Connect takes it, of the socket `name` of a process that
  // has the folder `id`: a file if that is this folder, else a name without a file. `name` may come
  // from any process.
  std::string AddressOf(absl::string_view name, absl::string_view id) const;

  // An error of a call for a file of the folder, with the reason of `error`.
  absl::Status Failed(absl::string_view what, int error) const;

  // Removes the sockets of this user that processes left when they were killed. A socket gets its
  // file a moment before the kernel knows its address, so new files stay.
  void RemoveStale(absl::Duration least_age = absl::Seconds(10)) const;

 private:
  std::string path_;
  std::string origin_;  // for errors, such as: COHORT_HOST_FOLDER is "/run/cohort"
  std::string id_;
};

// The begin of all names of sockets.
inline constexpr char kSocketPrefix[] = "cohort-";

}  // namespace cohort::shm

#endif  // COHORT_BASE_SHM_HOST_FOLDER_H_
