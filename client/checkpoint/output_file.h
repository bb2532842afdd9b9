// A file that appears as a whole or not at all.
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

// Creates a file in the folder that the descriptor `folder` refers to. Follows no link and reuses
// no file. Errors: ALREADY_EXISTS if the folder has an entry of that name, even a dangling link.
absl::StatusOr<UniqueFd> CreateNewFile(int folder, const std::string& name);

// A file that appears under its name only when it is complete. It is written in the same folder
// under a random name, synced, and then renamed. It may replace a regular file and nothing else.
// Without Commit the temporary file is removed. Thread-compatible.
//
// Errors of all methods, each with the file's name: NOT_FOUND (no such folder), PERMISSION_DENIED,
// RESOURCE_EXHAUSTED (the disk is full), FAILED_PRECONDITION (the name belongs to a folder, a
// symbolic link, a device or another special file), INTERNAL.
class OutputFile {
 public:
  static absl::StatusOr<std::unique_ptr<OutputFile>> Create(const std::string& path);
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // The temporary file's path until Commit; for code that must remove it when the process ends
  // early.
  const std::string& temporary() const { return temporary_; }

  // Appends the bytes after those of the call before.
  absl::Status Append(absl::string_view bytes);
  absl::Status Commit();

 private:
  OutputFile(const std::string& path, UniqueFd folder);

  absl::Status CheckTarget() const;

  const std::string path_;
  const UniqueFd folder_;   // held, so that all steps use the same folder
  const std::string name_;  // in folder_, after Commit
  std::string temporary_name_;
  std::string temporary_;
  UniqueFd fd_;
  bool committed_ = false;
};

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_OUTPUT_FILE_H_
