// Which layers each stage of a pipeline holds. Experts:
// client/parallel/moe/routing/expert_placement.h.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_SPLIT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_SPLIT_H_

#include <vector>

#include "absl/status/statusor.h"

namespace cohort::parallel {

// Layers begin..end-1.
struct LayerRange {
  int begin = 0;
  int end = 0;

  friend bool operator==(const LayerRange& a, const LayerRange& b) {
    return a.begin == b.begin && a.end == b.end;
  }
};

// Returns the layers of each stage. If the layers do not divide, the rest goes one each to the
// stages before the last, from the back, because the last stage has other work. A stage may have no
// layers. Errors: INVALID_ARGUMENT (less than one stage, a negative number of layers). Source:
// vLLM's get_pp_indices.
absl::StatusOr<std::vector<LayerRange>> SplitLayers(int layers, int stages);
// Returns the layers of each stage, counts[i] for stage i. Errors: INVALID_ARGUMENT (not one count
// for each stage, a negative count, or a sum that is not `layers`).
absl::StatusOr<std::vector<LayerRange>> SplitLayers(int layers, int stages,
                                                    const std::vector<int>& counts);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_SPLIT_H_
