#include "worker/group/collectives/contiguous_scratch.h"

#include <algorithm>

#include "base/status_macros.h"

namespace cohort::worker {
namespace {

constexpr int64_t kLeast = int64_t{64} << 10;

}  // namespace

absl::StatusOr<char*> ContiguousScratch::Take(Use use, int64_t bytes) {
  Tensor& block = blocks_[use];
  if (bytes > block.bytes() || block.data() == nullptr) {
    // Doubles the block, so that growing calls do not allocate each time. A block that is not kept
    // is no larger than the call asked for.
    const int64_t wanted =
        bytes > kKept ? bytes : std::min(kKept, std::max({bytes, 2 * block.bytes(), kLeast}));
    block = Tensor();
    COHORT_ASSIGN_OR_RETURN(block, location_.Allocate(DataType::kU8, {wanted}));
    too_large_ = too_large_ || wanted > kKept;
  }
  return static_cast<char*>(block.data());
}

void ContiguousScratch::FreeLargeBlocks() {
  too_large_ = false;
  for (Tensor& block : blocks_) {
    if (block.bytes() > kKept) block = Tensor();
  }
}

}  // namespace cohort::worker
