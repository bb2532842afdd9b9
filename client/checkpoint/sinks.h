// What a rank may do with a checkpoint that comes.
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
#include "client/checkpoint/safetensors.h"
#include "client/checkpoint/transfer.h"

namespace cohort::checkpoint {

// Only checks that it came as it was sent.
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

// Writes it to a file, byte by byte what the root has.
class FileSink final : public Sink {
 public:
  explicit FileSink(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  absl::Status Begin(const Layout& layout, absl::string_view header) override;
  absl::Status Take(absl::string_view data) override { return file_->Append(data); }
  absl::Status End() override { return file_->Commit(); }

 private:
  const std::unique_ptr<OutputFile> file_;
};

// Compares it with a file that is there. Errors: DATA_LOSS, naming the first tensor that differs,
// or the file when it changed meanwhile.
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
  std::vector<char> buffer_;  // what the file has of a piece
};

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_SINKS_H_
