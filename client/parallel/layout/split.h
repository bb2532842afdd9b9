// What of a model each rank holds: layers of a pipeline, experts. Pure.
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

enum class ExpertPlacement {
  kLinear,      // runs: 0 1 2 | 3 4 5
  kRoundRobin,  // dealt out: 0 2 4 | 1 3 5
};

// The experts that `rank` of an expert group of `ranks` holds, in order. Those that do not divide
// go one each to the first ranks. Errors: INVALID_ARGUMENT (rank outside of 0..ranks-1, a negative
// number of experts).
// Source: vLLM's determine_expert_map
absl::StatusOr<std::vector<int>> ExpertsOf(int experts, int ranks, int rank,
                                           ExpertPlacement placement = ExpertPlacement::kLinear);
// Where an expert lies: the rank, and which of its experts it is.
struct ExpertPlace {
  int rank = 0;
  int index = 0;
};
// Errors: INVALID_ARGUMENT (no such expert, less than one rank).
absl::StatusOr<ExpertPlace> PlaceOf(int expert, int experts, int ranks,
                                    ExpertPlacement placement = ExpertPlacement::kLinear);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_SPLIT_H_
