#include "worker/communicator/wait_log.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

RankSet Ranks(const std::vector<int>& ranks) {
  RankSet set;
  for (const int rank : ranks) set.Add(rank);
  return set;
}

TEST(WaitLogTest, ChargesAllThatAreAwaitedAndNamesTheLongestFirst) {
  WaitLog log;
  EXPECT_TRUE(log.Read(4, 3).empty());
  log.Add(Ranks({1, 3}), absl::Seconds(2));
  log.Add(Ranks({3}), absl::Milliseconds(500));
  log.Add(Ranks({0}), absl::Milliseconds(1));
  log.Add(Ranks({}), absl::Hours(1));
  const std::vector<WaitedFor> waits = log.Read(4, 2);
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_EQ(waits[0].rank, 3);
  EXPECT_EQ(waits[0].time, absl::Milliseconds(2500));
  EXPECT_EQ(waits[1].rank, 1);
  EXPECT_EQ(waits[1].time, absl::Seconds(2));
}

TEST(WaitLogTest, LeavesOutWhatNoRankOfTheGroupIs) {
  WaitLog log;
  log.Add(Ranks({2, WaitLog::kRanks - 1, WaitLog::kRanks}), absl::Seconds(1));
  EXPECT_TRUE(log.Read(2, 9).empty());
  EXPECT_EQ(log.Read(WaitLog::kRanks * 2, 9).size(), 2u);
}

}  // namespace
}  // namespace cohort::worker
