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

// Written beside its place under another name, and moved there once it is on the disk. What was not
// committed is removed. Thread-compatible. Errors of all: NOT_FOUND (no such folder),
// PERMISSION_DENIED, RESOURCE_EXHAUSTED (no room), INTERNAL; they name the file.
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
  OutputFile(std::string path, std::string temporary, UniqueFd fd);

  const std::string path_;
  const std::string temporary_;
  UniqueFd fd_;
  bool committed_ = false;
};

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_OUTPUT_FILE_H_
