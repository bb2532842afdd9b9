// Contiguous memory for the duration of one call.
#ifndef COHORT_WORKER_GROUP_COLLECTIVES_CONTIGUOUS_SCRATCH_H_
#define COHORT_WORKER_GROUP_COLLECTIVES_CONTIGUOUS_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "worker/group/collectives/tensor_location.h"

namespace cohort::worker {

// Keeps its blocks for the next call. One thread at a time.
class ContiguousScratch {
 public:
  // Each use has a block of its own.
  enum Use { kInput = 0, kOutput = 1 };

  // `location` outlives it.
  explicit ContiguousScratch(TensorLocation* location) : location_(*location) {}

  // Returns memory that lasts until the next Take of the same use. It lies at a multiple of 64
  // bytes if the location's memory does.
  absl::StatusOr<char*> Take(Use use, int64_t bytes);

  // Ends a call: frees blocks of more than kKept bytes.
  static constexpr int64_t kKept = int64_t{64} << 20;
  void Trim() {
    if (too_large_) FreeLargeBlocks();
  }

 private:
  void FreeLargeBlocks();

  TensorLocation& location_;
  Tensor blocks_[2];
  bool too_large_ = false;  // a block has more than kKept bytes
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_COLLECTIVES_CONTIGUOUS_SCRATCH_H_
