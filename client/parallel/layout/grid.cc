#include "client/parallel/layout/grid.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

constexpr Axis kAxes[] = {
    Axis::kTensor,       Axis::kContext, Axis::kExpert,  Axis::kData,    Axis::kPipeline,
    Axis::kExternalData, Axis::kTensorX, Axis::kTensorY, Axis::kTensorZ,
};

bool Contains(const AxisOrder& order, Axis axis) {
  return std::find(order.begin(), order.end(), axis) != order.end();
}

absl::Status CheckNoneTwice(absl::string_view where, const std::vector<Axis>& axes) {
  std::set<Axis> seen;
  for (const Axis axis : axes) {
    if (seen.insert(axis).second) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the axis ", NameOf(axis), " is twice in ", where, " ", FormatOrder(axes)));
  }
  return absl::OkStatus();
}

// Counts through `sizes`, the first varying fastest, and returns the sums of stride times position.
RankList Count(const std::vector<int>& sizes, const std::vector<int>& strides) {
  RankList sums = {0};
  for (size_t i = 0; i < sizes.size(); ++i) {
    const size_t inner = sums.size();
    for (int at = 1; at < sizes[i]; ++at) {
      for (size_t k = 0; k < inner; ++k) sums.push_back(sums[k] + at * strides[i]);
    }
  }
  return sums;
}

}  // namespace

absl::string_view NameOf(Axis axis) {
  switch (axis) {
    case Axis::kTensor:
      return "tp";
    case Axis::kContext:
      return "cp";
    case Axis::kExpert:
      return "ep";
    case Axis::kData:
      return "dp";
    case Axis::kPipeline:
      return "pp";
    case Axis::kExternalData:
      return "external-dp";
    case Axis::kTensorX:
      return "tp-x";
    case Axis::kTensorY:
      return "tp-y";
    case Axis::kTensorZ:
      return "tp-z";
  }
  return "unknown";
}

std::optional<Axis> FindAxis(absl::string_view name) {
  const auto* const axis = std::find_if(std::begin(kAxes), std::end(kAxes),
                                        [&](Axis known) { return NameOf(known) == name; });
  if (axis == std::end(kAxes)) return std::nullopt;
  return *axis;
}

std::string FormatOrder(const AxisOrder& order) {
  return absl::StrJoin(order, "-",
                       [](std::string* text, Axis axis) { absl::StrAppend(text, NameOf(axis)); });
}

absl::StatusOr<AxisOrder> ParseOrder(absl::string_view text) {
  AxisOrder order;
  for (const absl::string_view word : absl::StrSplit(text, '-', absl::SkipWhitespace())) {
    const std::string name = absl::AsciiStrToLower(absl::StripAsciiWhitespace(word));
    // Axes whose names have a hyphen occur only in the layouts of frameworks.
    const std::optional<Axis> axis = FindAxis(name);
    if (!axis.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", word, "\" in the order \"", text, "\" is no axis; axes are tp, cp, ep, dp and pp"));
    }
    order.push_back(*axis);
  }
  COHORT_RETURN_IF_ERROR(CheckNoneTwice("the order", order));
  return order;
}

std::string FormatRankLists(const RankLists& lists) {
  return absl::StrCat("[",
                      absl::StrJoin(lists, ", ",
                                    [](std::string* text, const RankList& ranks) {
                                      absl::StrAppend(text, "[", absl::StrJoin(ranks, ", "), "]");
                                    }),
                      "]");
}

absl::StatusOr<Grid> Grid::Create(int world_size, const std::vector<AxisSize>& sizes,
                                  const AxisOrder& order, int first_rank) {
  COHORT_RETURN_IF_ERROR(CheckNoneTwice("the order", order));
  std::vector<Axis> sized;
  for (const AxisSize& size : sizes) sized.push_back(size.axis);
  COHORT_RETURN_IF_ERROR(CheckNoneTwice("the sizes of", sized));
  if (first_rank < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the first rank ", first_rank, " is negative"));
  }
  if (int64_t{first_rank} + world_size > std::numeric_limits<int>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("a world of ", world_size, " ranks from rank ",
                                                   first_rank, " on goes past the last number"));
  }

  Grid grid;
  grid.order_ = order;
  grid.sizes_.assign(order.size(), 1);
  int64_t product = 1;
  std::vector<std::string> factors;
  for (const AxisSize& size : sizes) {
    if (size.size < 1) {
      return absl::InvalidArgumentError(
          absl::StrCat("the size ", size.size, " of the axis ", NameOf(size.axis), " is below 1"));
    }
    if (size.size > 1 && !Contains(order, size.axis)) {
      return absl::InvalidArgumentError(absl::StrCat("the axis ", NameOf(size.axis), " of size ",
                                                     size.size, " is not in the order ",
                                                     FormatOrder(order)));
    }
    const auto at = std::find(order.begin(), order.end(), size.axis);
    if (at != order.end()) grid.sizes_[static_cast<size_t>(at - order.begin())] = size.size;
    factors.push_back(absl::StrCat(NameOf(size.axis), " ", size.size));
    // Far above any world: the exact number does not matter any more.
    product = std::min(product * size.size, int64_t{1} << 31);
  }
  if (product != world_size) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the world has ", world_size, " ranks, but ",
        factors.empty() ? "no axes" : absl::StrJoin(factors, " x "), " need ", product));
  }
  if (world_size > kMaxLayoutRanks) {
    return absl::InvalidArgumentError(absl::StrCat("the world has ", world_size,
                                                   " ranks, and a layout at most ",
                                                   kMaxLayoutRanks));
  }
  if (grid.size(Axis::kContext) > 1 && grid.size(Axis::kExpert) > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cp ", grid.size(Axis::kContext), " and ep ", grid.size(Axis::kExpert),
        " cut the same ranks in two ways: each needs a grid of its own, in which the other is 1"));
  }
  grid.world_size_ = world_size;
  grid.first_rank_ = first_rank;
  int stride = 1;
  for (const int size : grid.sizes_) {
    grid.strides_.push_back(stride);
    stride *= size;
  }
  return grid;
}

int Grid::size(Axis axis) const {
  const auto at = std::find(order_.begin(), order_.end(), axis);
  return at == order_.end() ? 1 : sizes_[static_cast<size_t>(at - order_.begin())];
}

absl::StatusOr<Coordinates> Grid::At(int rank) const {
  const int64_t place = int64_t{rank} - first_rank_;
  if (place < 0 || place >= world_size_) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " is not in ", first_rank_, "..",
                                                   int64_t{first_rank_} + world_size_ - 1));
  }
  Coordinates coordinates;
  for (size_t i = 0; i < order_.size(); ++i) {
    coordinates[order_[i]] = static_cast<int>(place / strides_[i] % sizes_[i]);
  }
  return coordinates;
}

absl::StatusOr<int> Grid::RankAt(const Coordinates& coordinates) const {
  int rank = first_rank_;
  for (const auto& [axis, position] : coordinates) {
    if (position < 0 || position >= size(axis)) {
      return absl::InvalidArgumentError(absl::StrCat("position ", position, " on the axis ",
                                                     NameOf(axis), ", which has ", size(axis)));
    }
    if (position == 0) continue;
    const auto at = std::find(order_.begin(), order_.end(), axis);
    rank += position * strides_[static_cast<size_t>(at - order_.begin())];
  }
  return rank;
}

absl::StatusOr<RankLists> Grid::Groups(const std::vector<Axis>& axes) const {
  COHORT_RETURN_IF_ERROR(CheckNoneTwice("the groups over", axes));
  std::vector<int> varying_sizes, varying_strides, held_sizes, held_strides;
  for (size_t i = 0; i < order_.size(); ++i) {
    const bool varies = Contains(axes, order_[i]);
    (varies ? varying_sizes : held_sizes).push_back(sizes_[i]);
    (varies ? varying_strides : held_strides).push_back(strides_[i]);
  }
  const RankList members = Count(varying_sizes, varying_strides);
  RankLists lists;
  for (const int begin : Count(held_sizes, held_strides)) {
    RankList& list = lists.emplace_back();
    list.reserve(members.size());
    for (const int member : members) list.push_back(first_rank_ + begin + member);
  }
  return lists;
}

}  // namespace cohort::parallel
