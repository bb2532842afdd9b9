// Which layers each stage of a pipeline holds. Pure. Experts: client/parallel/moe/placement.h.
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

// By stage. Layers that do not divide go one each to the stages before the last, from the back: the
// last has other work. A stage may have none. Errors: INVALID_ARGUMENT (less than one stage, a
// negative number of layers).
// Source: vLLM's get_pp_indices
absl::StatusOr<std::vector<LayerRange>> SplitLayers(int layers, int stages);
// By stage, as `counts` says. Errors: INVALID_ARGUMENT (not one count for each stage, a negative
// one, or another sum than `layers`).
absl::StatusOr<std::vector<LayerRange>> SplitLayers(int layers, int stages,
                                                    const std::vector<int>& counts);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_SPLIT_H_
