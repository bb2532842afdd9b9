#include "client/parallel/layout/split.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::parallel {
namespace {

absl::Status CheckLayers(int layers, int stages) {
  if (stages >= 1 && layers >= 0) return absl::OkStatus();
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
  // There are fewer than stages: they end before the first.
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
                     sum, " layers) is none of ", layers, " layers over ", stages, " stages"));
  }
  return RangesOf(counts);
}

absl::StatusOr<std::vector<int>> ExpertsOf(int experts, int ranks, int rank,
                                           ExpertPlacement placement) {
  if (experts < 0 || rank < 0 || rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank, " of ", ranks, " cannot hold a part of ", experts, " experts"));
  }
  const int base = experts / ranks;
  const int rest = experts % ranks;
  const int count = base + (rank < rest ? 1 : 0);
  const bool linear = placement == ExpertPlacement::kLinear;
  std::vector<int> held;
  for (int i = 0; i < count; ++i) {
    held.push_back(linear ? rank * base + std::min(rank, rest) + i : rank + i * ranks);
  }
  return held;
}

absl::StatusOr<ExpertPlace> PlaceOf(int expert, int experts, int ranks, ExpertPlacement placement) {
  if (ranks < 1 || expert < 0 || expert >= experts) {
    return absl::InvalidArgumentError(
        absl::StrCat("expert ", expert, " is none of ", experts, " on ", ranks, " ranks"));
  }
  if (placement == ExpertPlacement::kRoundRobin) {
    return ExpertPlace{expert % ranks, expert / ranks};
  }
  const int base = experts / ranks;
  const int rest = experts % ranks;
  const int longer = rest * (base + 1);  // experts of ranks that have one more
  if (expert < longer) return ExpertPlace{expert / (base + 1), expert % (base + 1)};
  return ExpertPlace{rest + (expert - longer) / base, (expert - longer) % base};
}

}  // namespace cohort::parallel
