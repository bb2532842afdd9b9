#include "base/missing_ranks.h"

#include <vector>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(MissingRanksTest, AnErrorHasItsRanks) {
  const std::vector<RankRange> ranks = {{0, 0}, {3, 4}, {100, 100}};
  const absl::Status status = MissingRanksError("barrier: rank 0,3-4,100 did not come", ranks);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_EQ(status.message(), "barrier: rank 0,3-4,100 did not come");
  EXPECT_EQ(MissingRanksOf(status), ranks);
}

TEST(MissingRanksTest, OtherErrorsHaveNone) {
  EXPECT_TRUE(MissingRanksOf(absl::OkStatus()).empty());
  EXPECT_TRUE(MissingRanksOf(absl::DeadlineExceededError("late")).empty());
  EXPECT_TRUE(MissingRanksOf(MissingRanksError("late", {})).empty());
}

}  // namespace
}  // namespace cohort
