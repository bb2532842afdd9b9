#include "client/parallel/moe/routing/expert_placement.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ExpertPlacement, BlocksGiveTheRemainderToTheFirst) {
  const ExpertPlacement placement = *ExpertPlacement::Blocks(7, 3);
  EXPECT_EQ(placement.experts(), 7);
  EXPECT_EQ(placement.ranks(), 3);
  EXPECT_THAT(placement.ExpertsOf(0), ElementsAre(0, 1, 2));
  EXPECT_THAT(placement.ExpertsOf(1), ElementsAre(3, 4));
  EXPECT_THAT(placement.ExpertsOf(2), ElementsAre(5, 6));
  EXPECT_EQ(placement.RankOf(4), 1);
  EXPECT_EQ(placement.LocalOf(4), 1);
}

TEST(ExpertPlacement, MayLeaveRanksWithout) {
  const ExpertPlacement placement = *ExpertPlacement::Blocks(1, 3);
  EXPECT_EQ(placement.CountOf(0), 1);
  EXPECT_EQ(placement.CountOf(2), 0);
  EXPECT_THAT(placement.ExpertsOf(2), IsEmpty());
  EXPECT_EQ(ExpertPlacement::Blocks(0, 2)->experts(), 0);
}

TEST(ExpertPlacement, AnyMapCountsByTheExpertsNumbers) {
  const ExpertPlacement placement = *ExpertPlacement::Of({1, 0, 1, 1, 0}, 2);
  EXPECT_THAT(placement.ExpertsOf(0), ElementsAre(1, 4));
  EXPECT_THAT(placement.ExpertsOf(1), ElementsAre(0, 2, 3));
  EXPECT_EQ(placement.LocalOf(3), 2);
  EXPECT_EQ(placement.LocalOf(4), 1);
}

TEST(ExpertPlacement, FingerprintsDistinguishThem) {
  const uint64_t blocks = ExpertPlacement::Blocks(4, 2)->fingerprint();
  EXPECT_EQ(blocks, ExpertPlacement::Of({0, 0, 1, 1}, 2)->fingerprint());
  EXPECT_NE(blocks, ExpertPlacement::Of({0, 1, 0, 1}, 2)->fingerprint());
  EXPECT_NE(blocks, ExpertPlacement::Blocks(5, 2)->fingerprint());
  EXPECT_NE(blocks, ExpertPlacement::Of({0, 0, 1, 1}, 3)->fingerprint());
}

TEST(ExpertPlacement, RejectsInvalidPlacements) {
  const auto expect_refused = [](const absl::Status& status, const char* why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  expect_refused(ExpertPlacement::Of({0, 2}, 2).status(), "expert 1 is placed on rank 2");
  expect_refused(ExpertPlacement::Of({-1}, 2).status(), "expert 0 is placed on rank -1");
  expect_refused(ExpertPlacement::Blocks(-1, 2).status(), "-1 experts");
  expect_refused(ExpertPlacement::Blocks(int64_t{1} << 31, 2).status(), "2147483648 experts");
  expect_refused(ExpertPlacement::Blocks(4, 0).status(), "0 ranks");
  expect_refused(ExpertPlacement::Blocks(4, 1 << 21).status(), "on 2097152 ranks");
}

TEST(ExpertPlacement, DealtOut) {
  const absl::StatusOr<ExpertPlacement> placement = ExpertPlacement::RoundRobin(7, 3);
  ASSERT_TRUE(placement.ok()) << placement.status();
  EXPECT_EQ(placement->ExpertsOf(0), (std::vector<int64_t>{0, 3, 6}));
  EXPECT_EQ(placement->ExpertsOf(1), (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(placement->RankOf(5), 2);
  EXPECT_EQ(placement->LocalOf(5), 1);
  EXPECT_EQ(ExpertPlacement::RoundRobin(1, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::parallel
