// Sends a checkpoint from one rank to all others of a group, in large pieces, with checksums.
#ifndef COHORT_CLIENT_CHECKPOINT_PUSH_PULL_H_
#define COHORT_CLIENT_CHECKPOINT_PUSH_PULL_H_

#include <cstdint>
#include <functional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/checkpoint/safetensors.h"
#include "client/collective/group.h"

namespace cohort::checkpoint {

struct TransferOptions {
  // The bytes of one piece; the root's value counts. Two pieces are in memory: while one is
  // broadcast, the root reads the next, and the others check and keep the one before.
  int64_t piece_bytes = int64_t{8} << 20;
  // Called after each piece, on the caller's thread, with the bytes of the file so far.
  std::function<void(int64_t bytes, int64_t of_bytes)> on_progress;
};

struct TransferReport {
  int64_t tensors = 0;
  int64_t bytes = 0;  // of the file
  absl::Duration time;
  uint32_t crc32 = 0;  // of the file
};

// Takes a received checkpoint. Called on other threads than Pull's, one at a time.
class Sink {
 public:
  virtual ~Sink() = default;
  // Called first; `header` is the beginning of the file, unchanged.
  virtual absl::Status Begin(const Layout& layout, absl::string_view header) = 0;
  // Called with the bytes after the header, in order.
  virtual absl::Status Take(absl::string_view data) = 0;
  // Called last, after all checksums were right.
  virtual absl::Status End() = 0;
};

// The root calls it while all others call Pull. `file` may be an error: then nothing is sent, and
// all get that error at once. Errors: those of `file`; DATA_LOSS (the file changed meanwhile);
// those of Group; the error of a rank that could not take the checkpoint, naming the rank: the
// other ranks have it nonetheless.
absl::StatusOr<TransferReport> Push(client::Group& group, const absl::StatusOr<File>& file,
                                    const TransferOptions& options);

// Errors: the root's, named as such; DATA_LOSS (a tensor did not arrive as it was sent); those of
// the sink, which do not stop the others; those of Group.
absl::StatusOr<TransferReport> Pull(client::Group& group, int root, Sink& sink,
                                    const TransferOptions& options);

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_PUSH_PULL_H_
