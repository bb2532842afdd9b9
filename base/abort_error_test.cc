#include "base/abort_error.h"

#include "base/error_ranks.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(AbortErrorTest, HasTheRankOfItsCause) {
  const absl::Status error = AbortError("rank 12 is gone: its process 4711 ended");
  EXPECT_TRUE(absl::IsAborted(error));
  EXPECT_EQ(error.message(), "rank 12 is gone: its process 4711 ended");
  EXPECT_EQ(CulpritOf(error), 12);
  EXPECT_EQ(CulpritOf(AbortError("rank 0 is gone: its process 4711 ended")), 0);
}

TEST(AbortErrorTest, ARankThatReportsAnErrorIsNoCulprit) {
  for (const absl::string_view cause :
       {"rank 0 gave up barrier: rank 1-2 did not come", "rank 0 gave up: no memory",
        "rank 0 could not form NCCL's group: timeout", "rank 0 found shared memory damaged",
        "rank 0 goes on in the next generation"}) {
    EXPECT_EQ(CulpritOf(AbortError(cause)), std::nullopt) << cause;
  }
}

TEST(AbortErrorTest, OtherCausesHaveNoCulprit) {
  for (const absl::string_view cause :
       {"", "rank", "rank ", "rank x is gone", "rank -1 is gone", "rank 1-2 did not come",
        "rank 99999999999 is gone", "the group ended"}) {
    EXPECT_EQ(CulpritOf(AbortError(cause)), std::nullopt) << cause;
  }
}

}  // namespace
}  // namespace cohort
