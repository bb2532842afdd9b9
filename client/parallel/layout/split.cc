#include "client/parallel/layout/split.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/parallel/layout/grid.h"

namespace cohort::parallel {
namespace {

absl::Status CheckLayers(int layers, int stages) {
  if (stages >= 1 && stages <= kMaxLayoutRanks && layers >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(layers, " layers cannot be split over ", stages, " stages"));
}

std::vector<LayerRange> RangesOf(const std::vector<int>& counts) {
  std::vector<LayerRange> ranges;
  int begin = 0;
  for (const int count : counts) {
    ranges.push_back({begin, begin + count});
    begin += count;
  }
  return ranges;
}

}  // namespace

absl::StatusOr<std::vector<LayerRange>> SplitLayers(int layers, int stages) {
  if (absl::Status fits = CheckLayers(layers, stages); !fits.ok()) return fits;
  std::vector<int> counts(static_cast<size_t>(stages), layers / stages);
  // The rest is smaller than `stages`, so it ends before the first stage.
  const int rest = layers % stages;
  for (int i = 0; i < rest; ++i) ++counts[static_cast<size_t>(stages - 2 - i)];
  return RangesOf(counts);
}

absl::StatusOr<std::vector<LayerRange>> SplitLayers(int layers, int stages,
                                                    const std::vector<int>& counts) {
  if (absl::Status fits = CheckLayers(layers, stages); !fits.ok()) return fits;
  const bool negative = std::any_of(counts.begin(), counts.end(), [](int n) { return n < 0; });
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (counts.size() != static_cast<size_t>(stages) || negative || sum != layers) {
    return absl::InvalidArgumentError(
        absl::StrCat("the partition ", absl::StrJoin(counts, ","), " (", counts.size(), " stages, ",
                     sum, " layers) does not split ", layers, " layers over ", stages, " stages"));
  }
  return RangesOf(counts);
}

}  // namespace cohort::parallel
