#include "base/rank_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

namespace cohort {
namespace {

using ::testing::ElementsAre;

TEST(RankSet, WritesRanges) {
  RankSet set = RankSet::FromRanges({{0, 0}, {3, 7}, {9, 9}});
  EXPECT_EQ(set.count(), 7);
  EXPECT_EQ(set.ToString(), "0,3-7,9");
  EXPECT_THAT(set.ToRanges(), ElementsAre(RankRange{0, 0}, RankRange{3, 7}, RankRange{9, 9}));
}

TEST(RankSet, AllHasExactlyTheWorld) {
  for (int world_size : {1, 2, 63, 64, 65, 128, 1000}) {
    RankSet all = RankSet::All(world_size);
    EXPECT_EQ(all.count(), world_size);
    EXPECT_EQ(all.first(), 0);
    EXPECT_EQ(all.last(), world_size - 1);
    EXPECT_FALSE(all.Contains(world_size));
    EXPECT_FALSE(all.Contains(-1));
  }
}

TEST(RankSet, EqualityIgnoresCapacity) {
  RankSet a = RankSet::FromRanges({{1, 1}, {500, 500}});
  a.Remove(500);
  EXPECT_EQ(a, RankSet::FromRanges({{1, 1}}));
  EXPECT_NE(a, RankSet::FromRanges({{2, 2}}));
}

TEST(RankSet, OneRankIsNotNamedAsMany) {
  EXPECT_EQ(NameRanks({{3, 3}}), "rank 3");
  EXPECT_EQ(NameRanks({{3, 4}}), "ranks 3-4");
  EXPECT_EQ(NameRanks({{0, 0}, {3, 3}}), "ranks 0,3");
}

TEST(RankSet, BehavesLikeASet) {
  std::mt19937 random(7);
  RankSet set;
  std::set<int> model;
  for (int i = 0; i < 5000; ++i) {
    const int rank = random() % 300;
    if (random() % 2) {
      EXPECT_EQ(set.Add(rank), model.insert(rank).second);
    } else {
      EXPECT_EQ(set.Remove(rank), model.erase(rank) == 1);
    }
    ASSERT_EQ(set.count(), static_cast<int>(model.size()));
    ASSERT_EQ(set.first(), model.empty() ? -1 : *model.begin());
    ASSERT_EQ(set.last(), model.empty() ? -1 : *model.rbegin());
    ASSERT_EQ(set.CountBelow(rank), std::distance(model.begin(), model.lower_bound(rank)));
  }
  EXPECT_EQ(set.ToVector(), std::vector<int>(model.begin(), model.end()));
}

}  // namespace
}  // namespace cohort
