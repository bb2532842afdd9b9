#include "client/parallel/moe/routing/path_costs.h"

#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

ExchangeShape Shape(int ranks, int64_t rows) {
  ExchangeShape shape;
  shape.ranks = ranks;
  shape.tokens = 100;
  shape.routed_rows = rows;
  shape.row_bytes = 1000;
  shape.combine_row_bytes = 1000;
  return shape;
}

TEST(Costs, OnOneHostThePathsBreakEvenAtThreeOfSevenRanks) {
  EXPECT_LT(RoutedBytes(Shape(7, 299)), GatheredBytes(Shape(7, 299)));
  EXPECT_EQ(RoutedBytes(Shape(7, 300)), GatheredBytes(Shape(7, 300)));
  EXPECT_GT(RoutedBytes(Shape(7, 301)), GatheredBytes(Shape(7, 301)));
}

// One expert for each token on many ranks, the case for routing. And all ranks for each token.
TEST(Costs, FavourRoutingWhereTokensGoToFewRanks) {
  EXPECT_LT(10 * RoutedBytes(Shape(64, 100)), 3 * GatheredBytes(Shape(64, 100)));
  EXPECT_GT(RoutedBytes(Shape(8, 800)), 2 * GatheredBytes(Shape(8, 800)));
}

}  // namespace
}  // namespace cohort::parallel
