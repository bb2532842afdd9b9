// A checkpoint from one rank to all others of a group, in large pieces, checked.
#ifndef COHORT_CLIENT_CHECKPOINT_TRANSFER_H_
#define COHORT_CLIENT_CHECKPOINT_TRANSFER_H_

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
  // How much goes at once; the root's counts. Two such pieces are on their way: while one is
  // broadcast, the root reads the next, and the others check and keep the one before.
  int64_t piece_bytes = int64_t{8} << 20;
  // After each piece, on the caller's thread: how much of the file has gone.
  std::function<void(int64_t bytes, int64_t of_bytes)> on_progress;
};

struct TransferReport {
  int64_t tensors = 0;
  int64_t bytes = 0;  // of the file
  absl::Duration time;
  uint32_t crc32 = 0;  // of the file
};

// What a rank does with what comes. Called on other threads than Pull's, one at a time.
class Sink {
 public:
  virtual ~Sink() = default;
  // First; `header` is the beginning of the file as it is.
  virtual absl::Status Begin(const Layout& layout, absl::string_view header) = 0;
  // Then all behind it, in order.
  virtual absl::Status Take(absl::string_view data) = 0;
  // At last, when all checksums were right.
  virtual absl::Status End() = 0;
};

// Called by the root, while all others call Pull. `file` may be an error: then nothing is sent, and
// all get that error at once. Errors: those of `file`; DATA_LOSS (the file changed meanwhile);
// those of Group; and when a rank could not take the checkpoint its error, naming the rank: the
// others have it all the same.
absl::StatusOr<TransferReport> Push(client::Group& group, const absl::StatusOr<File>& file,
                                    const TransferOptions& options);

// Errors: the root's, saying that it is the root's; DATA_LOSS (a tensor did not arrive as it was
// sent); those of the sink, which do not stop the others; those of Group.
absl::StatusOr<TransferReport> Pull(client::Group& group, int root, Sink& sink,
                                    const TransferOptions& options);

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_TRANSFER_H_
