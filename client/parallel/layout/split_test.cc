#include "client/parallel/layout/split.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<int> CountsOf(const std::vector<LayerRange>& ranges) {
  std::vector<int> counts;
  for (const LayerRange& range : ranges) counts.push_back(range.end - range.begin);
  return counts;
}

TEST(SplitLayersTest, TheRestGoesBeforeTheLastStage) {
  EXPECT_THAT(CountsOf(*SplitLayers(8, 4)), ElementsAre(2, 2, 2, 2));
  EXPECT_THAT(CountsOf(*SplitLayers(9, 4)), ElementsAre(2, 2, 3, 2));
  EXPECT_THAT(CountsOf(*SplitLayers(11, 4)), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(CountsOf(*SplitLayers(2, 4)), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(*SplitLayers(5, 2), ElementsAre(LayerRange{0, 3}, LayerRange{3, 5}));
  EXPECT_THAT(CountsOf(*SplitLayers(7, 1)), ElementsAre(7));
  EXPECT_EQ(SplitLayers(7, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SplitLayers(7, 1 << 21).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SplitLayersTest, OrAsAsked) {
  EXPECT_THAT(*SplitLayers(6, 3, {1, 0, 5}),
              ElementsAre(LayerRange{0, 1}, LayerRange{1, 1}, LayerRange{1, 6}));
  for (const std::vector<int>& counts :
       {std::vector<int>{3, 3}, std::vector<int>{2, 2, 3}, std::vector<int>{-1, 3, 4}}) {
    const absl::Status refused = SplitLayers(6, 3, counts).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("6 layers"), HasSubstr("3 stages")));
  }
}

}  // namespace
}  // namespace cohort::parallel
