// Contiguous memory for the time of one call.
#ifndef COHORT_WORKER_GROUP_SCRATCH_H_
#define COHORT_WORKER_GROUP_SCRATCH_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "worker/group/tensor_place.h"

namespace cohort::worker {

// Keeps what it has for the next call. One thread at a time.
class Scratch {
 public:
  // What is taken for one does not disturb the other.
  enum Use { kInput = 0, kOutput = 1 };

  // `place` outlives it.
  explicit Scratch(TensorPlace* place) : place_(*place) {}

  // At a multiple of 64 bytes if what the place gives is; until the next of the same use.
  absl::StatusOr<char*> Take(Use use, int64_t bytes);

  // At the end of a call: what is large goes back.
  static constexpr int64_t kKept = int64_t{64} << 20;
  void Trim();

 private:
  TensorPlace& place_;
  Tensor blocks_[2];
  bool too_large_ = false;  // one of them is more than is kept
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_SCRATCH_H_
