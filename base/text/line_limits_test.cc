#include "base/text/line_limits.h"

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(LineLimitsTest, AKeyHasItsLinesInEachPeriodAndTheNextOneCountsTheOthers) {
  LineLimits limits(2, 100, absl::Seconds(10));
  const Instant start;
  EXPECT_EQ(limits.Take("a", start), 1);
  EXPECT_EQ(limits.Take("a", start), 1);
  EXPECT_EQ(limits.Take("a", start), 0);
  EXPECT_EQ(limits.Take("a", start + absl::Seconds(9)), 0);
  EXPECT_EQ(limits.Take("a", start + absl::Seconds(10)), 3);
}

TEST(LineLimitsTest, ANoisyKeyHidesNoOther) {
  LineLimits limits(2, 100, absl::Seconds(1));
  for (int i = 0; i < 1000; ++i) limits.Take("noisy", Instant());
  EXPECT_EQ(limits.Take("quiet", Instant()), 1);
}

TEST(LineLimitsTest, AllKeysTogetherHaveALimitAndALineLeftOutByItCounts) {
  LineLimits limits(1, 3, absl::Seconds(1));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(limits.Take(absl::StrCat(i), Instant()), 1);
  EXPECT_EQ(limits.Take("d", Instant()), 0);
  EXPECT_EQ(limits.Take("d", Instant() + absl::Seconds(1)), 2);
}

// Those that are forgotten start again; the limit of all holds nevertheless.
TEST(LineLimitsTest, AnyNumberOfKeysCostsTheLinesOfAll) {
  LineLimits limits(1, 50, absl::Seconds(1));
  int lines = 0;
  for (size_t i = 0; i < 10 * LineLimits::kMaxKeys; ++i) {
    if (limits.Take(absl::StrCat("client ", i), Instant()) > 0) ++lines;
  }
  EXPECT_EQ(lines, 50);
}

}  // namespace
}  // namespace cohort
