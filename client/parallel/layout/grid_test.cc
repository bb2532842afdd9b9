#include "client/parallel/layout/grid.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const AxisOrder kTensorDataPipeline = {Axis::kTensor, Axis::kData, Axis::kPipeline};

Grid Make(int world_size, const std::vector<AxisSize>& sizes, const AxisOrder& order,
          int first_rank = 0) {
  absl::StatusOr<Grid> grid = Grid::Create(world_size, sizes, order, first_rank);
  EXPECT_TRUE(grid.ok()) << grid.status();
  return *std::move(grid);
}

RankLists GroupsOf(const Grid& grid, const std::vector<Axis>& axes) {
  const absl::StatusOr<RankLists> lists = grid.Groups(axes);
  EXPECT_TRUE(lists.ok()) << lists.status();
  return *lists;
}

void ExpectRefused(const absl::Status& status, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

TEST(GridTest, LeftmostVariesFastest) {
  const Grid grid =
      Make(8, {{Axis::kPipeline, 2}, {Axis::kTensor, 2}, {Axis::kData, 2}}, kTensorDataPipeline);
  EXPECT_THAT(GroupsOf(grid, {Axis::kTensor}),
              ElementsAre(RankList{0, 1}, RankList{2, 3}, RankList{4, 5}, RankList{6, 7}));
  EXPECT_THAT(GroupsOf(grid, {Axis::kData}),
              ElementsAre(RankList{0, 2}, RankList{1, 3}, RankList{4, 6}, RankList{5, 7}));
  EXPECT_THAT(GroupsOf(grid, {Axis::kPipeline}),
              ElementsAre(RankList{0, 4}, RankList{1, 5}, RankList{2, 6}, RankList{3, 7}));
  // The order of the varying axes is the grid's.
  EXPECT_THAT(GroupsOf(grid, {Axis::kPipeline, Axis::kTensor}),
              ElementsAre(RankList{0, 1, 4, 5}, RankList{2, 3, 6, 7}));
  EXPECT_EQ(grid.At(6)->at(Axis::kPipeline), 1);
  EXPECT_EQ(*grid.RankAt({{Axis::kPipeline, 1}, {Axis::kData, 1}}), 6);
}

TEST(GridTest, BeginsAtAnyRank) {
  const Grid grid = Make(4, {{Axis::kTensor, 2}, {Axis::kData, 2}}, kTensorDataPipeline, 10);
  EXPECT_THAT(GroupsOf(grid, {Axis::kData}), ElementsAre(RankList{10, 12}, RankList{11, 13}));
  EXPECT_EQ(grid.At(13)->at(Axis::kData), 1);
  ExpectRefused(grid.At(9).status(), {"rank 9", "10..13"});
  ExpectRefused(grid.At(14).status(), {"rank 14", "10..13"});
}

TEST(GridTest, OneRankIsAWorld) {
  const Grid grid = Make(1, {}, {});
  EXPECT_THAT(GroupsOf(grid, {Axis::kTensor}), ElementsAre(RankList{0}));
  EXPECT_EQ(*grid.RankAt({}), 0);
}

TEST(GridTest, RefusesWithNumbers) {
  ExpectRefused(Grid::Create(8, {{Axis::kTensor, 3}}, kTensorDataPipeline).status(),
                {"8 ranks", "tp 3", "need 3"});
  ExpectRefused(Grid::Create(8, {}, {}).status(), {"8 ranks", "need 1"});
  ExpectRefused(Grid::Create(0, {}, {}).status(), {"0 ranks"});
  ExpectRefused(Grid::Create(2, {{Axis::kTensor, 0}}, kTensorDataPipeline).status(),
                {"size 0", "tp"});
  ExpectRefused(Grid::Create(2, {{Axis::kContext, 2}}, kTensorDataPipeline).status(),
                {"cp", "size 2", "tp-dp-pp"});
  ExpectRefused(Grid::Create(2, {{Axis::kTensor, 2}}, {Axis::kTensor, Axis::kTensor}).status(),
                {"tp is twice", "tp-tp"});
  ExpectRefused(
      Grid::Create(4, {{Axis::kTensor, 2}, {Axis::kTensor, 2}}, kTensorDataPipeline).status(),
      {"tp is twice"});
  ExpectRefused(
      Grid::Create(4, {{Axis::kContext, 2}, {Axis::kExpert, 2}}, {Axis::kContext, Axis::kExpert})
          .status(),
      {"cp 2", "ep 2"});
  ExpectRefused(Grid::Create(1, {}, {}, -1).status(), {"-1"});
  ExpectRefused(Grid::Create(2, {{Axis::kTensor, 2}}, {Axis::kTensor}, 2147483647).status(),
                {"2147483647"});
  ExpectRefused(
      Grid::Create(4, {{Axis::kTensor, 65536}, {Axis::kData, 65536}}, kTensorDataPipeline).status(),
      {"tp 65536"});
  ExpectRefused(Grid::Create(1 << 21, {{Axis::kTensor, 1 << 21}}, {Axis::kTensor}).status(),
                {"2097152 ranks", "at most 1048576"});
  const Grid grid = Make(2, {{Axis::kTensor, 2}}, kTensorDataPipeline);
  ExpectRefused(grid.Groups({Axis::kTensor, Axis::kTensor}).status(), {"tp is twice"});
  ExpectRefused(grid.RankAt({{Axis::kTensor, 2}}).status(), {"position 2", "tp"});
  ExpectRefused(grid.RankAt({{Axis::kExpert, 1}}).status(), {"position 1", "ep"});
}

TEST(GridTest, OrdersAreReadByWholeNames) {
  EXPECT_EQ(*ParseOrder("tp-CP-ep-dp-pp"), (AxisOrder{Axis::kTensor, Axis::kContext, Axis::kExpert,
                                                      Axis::kData, Axis::kPipeline}));
  EXPECT_EQ(FormatOrder(kTensorDataPipeline), "tp-dp-pp");
  ExpectRefused(ParseOrder("gtp-dp").status(), {"gtp"});
  ExpectRefused(ParseOrder("tp-dp-tp").status(), {"tp is twice"});
  EXPECT_TRUE(ParseOrder("")->empty());
}

TEST(GridTest, AxesAreFoundByName) {
  for (const Axis axis : {Axis::kTensor, Axis::kExternalData, Axis::kTensorZ}) {
    EXPECT_EQ(FindAxis(NameOf(axis)), axis);
  }
  EXPECT_EQ(FindAxis("tp-w"), std::nullopt);
}

// The ranks that share all coordinates but those of `axes`, found by visiting every rank.
RankLists Model(const Grid& grid, const std::vector<Axis>& axes) {
  std::map<Coordinates, RankList> lists;
  for (int rank = grid.first_rank(); rank < grid.first_rank() + grid.world_size(); ++rank) {
    Coordinates held = *grid.At(rank);
    for (const Axis axis : axes) held.erase(axis);
    lists[held].push_back(rank);
  }
  RankLists model;
  for (const auto& [held, ranks] : lists) model.push_back(ranks);
  std::sort(model.begin(), model.end());
  return model;
}

TEST(GridTest, AnyAxesPartitionTheWorldAndCrossInOneRank) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  const auto below = [&](int n) { return std::uniform_int_distribution<int>(0, n - 1)(random); };
  for (int round = 0; round < 200; ++round) {
    AxisOrder order = {Axis::kTensor, Axis::kContext, Axis::kData, Axis::kPipeline,
                       Axis::kExternalData};
    std::shuffle(order.begin(), order.end(), random);
    std::vector<AxisSize> sizes;
    int world = 1;
    for (const Axis axis : order) {
      sizes.push_back({axis, 1 + below(3)});
      world *= sizes.back().size;
    }
    const Grid grid = Make(world, sizes, order, below(5));

    // A rank's coordinates are the digits of a number in the order's bases.
    for (int rank = grid.first_rank(); rank < grid.first_rank() + world; ++rank) {
      const Coordinates at = *grid.At(rank);
      int number = 0;
      for (auto axis = order.rbegin(); axis != order.rend(); ++axis) {
        number = number * grid.size(*axis) + at.at(*axis);
      }
      ASSERT_EQ(grid.first_rank() + number, rank);
      ASSERT_EQ(*grid.RankAt(at), rank);
    }

    std::vector<Axis> axes, others;
    for (const Axis axis : order) (below(2) == 0 ? axes : others).push_back(axis);
    const RankLists lists = GroupsOf(grid, axes);
    RankLists sorted = lists;
    for (const RankList& list : sorted) ASSERT_TRUE(std::is_sorted(list.begin(), list.end()));
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted, Model(grid, axes));
    for (const RankList& list : lists) {
      for (const RankList& crossing : GroupsOf(grid, others)) {
        RankList common;
        std::set_intersection(list.begin(), list.end(), crossing.begin(), crossing.end(),
                              std::back_inserter(common));
        ASSERT_EQ(common.size(), 1u);
      }
    }
  }
}

}  // namespace
}  // namespace cohort::parallel
