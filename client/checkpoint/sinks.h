// The ways in which a rank takes a received checkpoint.
#ifndef COHORT_CLIENT_CHECKPOINT_SINKS_H_
#define COHORT_CLIENT_CHECKPOINT_SINKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/checkpoint/output_file.h"
#include "client/checkpoint/push_pull.h"
#include "client/checkpoint/safetensors.h"

namespace cohort::checkpoint {

// Only checks that the checkpoint arrives as it was sent.
class CheckSink final : public Sink {
 public:
  absl::Status Begin(const Layout&, absl::string_view) override { return absl::OkStatus(); }
  absl::Status Take(absl::string_view) override { return absl::OkStatus(); }
  absl::Status End() override { return absl::OkStatus(); }
};

// For a rank that knows in advance that it cannot keep the checkpoint. It takes part nonetheless,
// so that no rank waits for it and all get the reason.
class FailedSink final : public Sink {
 public:
  explicit FailedSink(absl::Status status) : status_(std::move(status)) {}

  absl::Status Begin(const Layout&, absl::string_view) override { return status_; }
  absl::Status Take(absl::string_view) override { return status_; }
  absl::Status End() override { return status_; }

 private:
  const absl::Status status_;
};

// Writes the checkpoint to a file with the same bytes as the root's.
class FileSink final : public Sink {
 public:
  explicit FileSink(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  absl::Status Begin(const Layout& layout, absl::string_view header) override;
  absl::Status Take(absl::string_view data) override { return file_->Append(data); }
  absl::Status End() override { return file_->Commit(); }

 private:
  const std::unique_ptr<OutputFile> file_;
};

// Compares the checkpoint with an existing file. Errors: DATA_LOSS, naming the first tensor that
// differs, or the file if it changed meanwhile.
class VerifySink final : public Sink {
 public:
  explicit VerifySink(const File& file) : file_(file) {}

  absl::Status Begin(const Layout& layout, absl::string_view header) override;
  absl::Status Take(absl::string_view data) override;
  absl::Status End() override { return file_.CheckUnchanged(); }

 private:
  absl::Status Differs(int64_t offset) const;

  const File& file_;
  int64_t offset_ = 0;
  std::vector<char> buffer_;  // the file's bytes for a piece
};

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_SINKS_H_
