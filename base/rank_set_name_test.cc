#include "base/rank_set_name.h"

#include <string>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(RankSetNameTest, IsTheRangesOrADigestOfThem) {
  RankSet ranks = RankSet::FromRanges({{0, 0}, {3, 7}, {9, 9}});
  EXPECT_EQ(NameOf(ranks), "0+3-7+9");
  EXPECT_EQ(NameOf(RankSet()), "");
  for (int rank = 11; rank < 64; rank += 2) ranks.Add(rank);
  const std::string longer = NameOf(ranks);
  EXPECT_EQ(longer.size(), 33u);
  ranks.Add(99);
  EXPECT_EQ(NameOf(ranks).size(), 33u);
  EXPECT_NE(NameOf(ranks), longer);
}

}  // namespace
}  // namespace cohort
