#include "base/error_ranks.h"

#include <vector>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(ErrorRanksTest, AnErrorHasItsRanks) {
  const std::vector<RankRange> ranks = {{0, 0}, {3, 4}, {100, 100}};
  const absl::Status status = MissingRanksError("barrier: rank 0,3-4,100 did not come", ranks);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status));
  EXPECT_EQ(status.message(), "barrier: rank 0,3-4,100 did not come");
  EXPECT_EQ(MissingRanksOf(status), ranks);
}

TEST(ErrorRanksTest, OtherErrorsHaveNone) {
  EXPECT_TRUE(MissingRanksOf(absl::OkStatus()).empty());
  EXPECT_TRUE(MissingRanksOf(absl::DeadlineExceededError("late")).empty());
  EXPECT_TRUE(MissingRanksOf(MissingRanksError("late", {})).empty());
}

TEST(ErrorRanksTest, AnErrorHasItsCulprit) {
  const absl::Status status = WithCulprit(absl::AbortedError("rank 12 is gone"), 12);
  EXPECT_EQ(CulpritOf(status), 12);
  EXPECT_TRUE(MissingRanksOf(status).empty());
  EXPECT_EQ(CulpritOf(absl::AbortedError("rank 12 is gone")), std::nullopt);
}

}  // namespace
}  // namespace cohort
