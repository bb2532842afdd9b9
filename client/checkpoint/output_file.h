// A file that is either there as a whole, or not.
#ifndef COHORT_CLIENT_CHECKPOINT_OUTPUT_FILE_H_
#define COHORT_CLIENT_CHECKPOINT_OUTPUT_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/unique_fd.h"

namespace cohort::checkpoint {

// Creates a file in the folder that `folder` has open. ALREADY_EXISTS: the folder has something of
// that name, be it a link that leads nowhere; nothing is followed or taken over.
absl::StatusOr<UniqueFd> CreateNewFile(int folder, const std::string& name);

// Written beside its place under a name that cannot be guessed, synced, and renamed to its place.
// It replaces a regular file and nothing else. What was not committed is removed.
// Thread-compatible. Errors of all: NOT_FOUND (no such folder), PERMISSION_DENIED,
// RESOURCE_EXHAUSTED (no room), FAILED_PRECONDITION (a folder, a symbolic link, a device or another
// special file has the name), INTERNAL; they name the file.
class OutputFile {
 public:
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Its name until it is committed; for who must remove it when the process ends early.
  const std::string& temporary() const { return temporary_; }

  // What is written one by one lies one behind the other.
  absl::Status Append(absl::string_view bytes);
  absl::Status Commit();

 private:
  OutputFile(const std::string& path, UniqueFd folder);

  absl::Status CheckTarget() const;

  const std::string path_;
  const UniqueFd folder_;   // held, so that all steps are in the same one
  const std::string name_;  // in folder_, at last
  std::string temporary_name_;
  std::string temporary_;
  UniqueFd fd_;
  bool committed_ = false;
};

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_OUTPUT_FILE_H_
