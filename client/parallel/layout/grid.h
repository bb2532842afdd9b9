// Ranks as points of a grid. It has one axis for each way in which a model is cut, and an order in
// which ranks count through the axes. These functions have no side effects.
//
//   COHORT_ASSIGN_OR_RETURN(const Grid grid,
//                           Grid::Create(16, {{Axis::kTensor, 2}, {Axis::kPipeline, 2},
//                                             {Axis::kData, 4}},
//                                        {Axis::kTensor, Axis::kData, Axis::kPipeline}));
//   grid.Groups({Axis::kData});   // [[0, 2, 4, 6], [1, 3, 5, 7], [8, 10, 12, 14], ...]
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GRID_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GRID_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort::parallel {

enum class Axis {
  kTensor,
  kContext,
  kExpert,
  kData,
  kPipeline,
  kExternalData,
  // The tensor axis cut further, for layouts of 2, 2.5 and 3 dimensions.
  kTensorX,
  kTensorY,
  kTensorZ,
};

// "tp", "cp", "ep", "dp", "pp", "external-dp", "tp-x", "tp-y", "tp-z".
absl::string_view NameOf(Axis axis);
// The axis of that name, or nothing.
std::optional<Axis> FindAxis(absl::string_view name);

// The most ranks of a layout.
inline constexpr int kMaxLayoutRanks = 1 << 20;

struct AxisSize {
  Axis axis = Axis::kTensor;
  int size = 1;
};

// The leftmost axis varies fastest: its neighbours are neighbouring ranks.
using AxisOrder = std::vector<Axis>;

// Parses an order such as "tp-cp-ep-dp-pp", in upper or lower case; each name is compared whole.
// Errors: INVALID_ARGUMENT (an unknown or repeated axis).
absl::StatusOr<AxisOrder> ParseOrder(absl::string_view text);
std::string FormatOrder(const AxisOrder& order);

using RankList = std::vector<int>;
using RankLists = std::vector<RankList>;
using Coordinates = std::map<Axis, int>;

// "[[0, 1], [2, 3]]"
std::string FormatRankLists(const RankLists& lists);

class Grid {
 public:
  // Makes a grid of the ranks first_rank..first_rank + world_size - 1. An axis without a size has
  // the size 1. Errors, INVALID_ARGUMENT with the numbers: a size below 1; an axis twice in `sizes`
  // or `order`; an axis of a size above 1 that is not in `order`; sizes whose product is not
  // `world_size`; context and expert axes above 1 in one grid (they cut the same ranks in two ways,
  // so each needs a grid of its own); a negative `first_rank`. Source: RankGenerator, without its
  // guesses: it does not append axes that are missing in the order.
  static absl::StatusOr<Grid> Create(int world_size, const std::vector<AxisSize>& sizes,
                                     const AxisOrder& order, int first_rank = 0);

  int world_size() const { return world_size_; }
  int first_rank() const { return first_rank_; }
  const AxisOrder& order() const { return order_; }
  // 1 for an axis that the grid does not have.
  int size(Axis axis) const;

  // The coordinates of `rank`, by axis of the order. Errors: INVALID_ARGUMENT (no rank of the
  // grid).
  absl::StatusOr<Coordinates> At(int rank) const;
  // An axis that is not in `coordinates` counts as 0. Errors: INVALID_ARGUMENT (outside of the
  // grid).
  absl::StatusOr<int> RankAt(const Coordinates& coordinates) const;

  // Returns one list for each combination of coordinates on the other axes; the lists are in the
  // grid's order. The members of a list vary over `axes`, in the grid's order, whatever the order
  // of `axes`. Each rank is in exactly one list. An axis that the grid lacks adds no ranks. Errors:
  // INVALID_ARGUMENT (an axis twice). Source: RankGenerator.get_ranks.
  absl::StatusOr<RankLists> Groups(const std::vector<Axis>& axes) const;

 private:
  Grid() = default;

  int world_size_ = 1;
  int first_rank_ = 0;
  AxisOrder order_;
  std::vector<int> sizes_;    // by place in the order
  std::vector<int> strides_;  // by place in the order: from one rank to its neighbour on that axis
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GRID_H_
