// A barrier of a thousand ranks to which seventeen do not come: every waiting rank gets an error
// that names exactly these seventeen.
#include <algorithm>
#include <iostream>
#include <random>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "base/rank_set.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::Answers;
using testing::BarrierAnswer;
using testing::BarrierSlot;
using testing::Connect;
using testing::CoordinatorProcess;
using testing::JoinAll;
using testing::Members;

constexpr int kWorldSize = 1000;
constexpr int kAbsentCount = 17;

RankSet DrawAbsent() {
  std::mt19937_64 random(testing::TestSeed());
  RankSet absent;
  while (absent.count() < kAbsentCount) absent.Add(random() % kWorldSize);
  return absent;
}

TEST(MissingRanksTest, EveryWaitingRankGetsTheExactMissingRanks) {
  CoordinatorProcess coordinator({});
  ASSERT_TRUE(coordinator.Start().ok());
  std::vector<std::shared_ptr<client::Connection>> connections;
  for (int index = 0; index < 8; ++index) connections.push_back(Connect(coordinator.address()));
  const Clock& clock = Clock::Steady();
  const Instant start = clock.Now();
  Members members = JoinAll(connections, "thousand", kWorldSize);
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  std::cout << "joined in " << clock.Now() - start << std::endl;

  const RankSet absent = DrawAbsent();
  client::RoundOptions options;
  options.name = "step";
  options.timeout = absl::Seconds(3);
  Answers<BarrierAnswer> answers(kWorldSize - kAbsentCount);
  const Instant asked = clock.Now();
  int index = 0;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    if (!absent.Contains(rank)) members[rank]->async().Barrier(options, BarrierSlot(answers, index++));
  }
  ASSERT_TRUE(answers.AwaitCount(1));
  const absl::Duration first = clock.Now() - asked;
  ASSERT_TRUE(answers.AwaitAll()) << answers.arrived() << " answers came";
  const absl::Duration last = clock.Now() - asked;
  std::cout << "asked to wait " << options.timeout << ": first answer after " << first
            << ", last after " << last << std::endl;

  for (index = 0; index < kWorldSize - kAbsentCount; ++index) {
    const BarrierAnswer& answer = answers[index];
    ASSERT_EQ(answer.status.code(), absl::StatusCode::kDeadlineExceeded) << answer.status;
    ASSERT_EQ(answer.report.missing.missing, absent.ToRanges())
        << FormatRanges(answer.report.missing.missing) << " instead of " << absent.ToString();
    ASSERT_EQ(answer.report.missing.expected_count, kWorldSize);
    ASSERT_EQ(answer.report.missing.arrived_count, kWorldSize - kAbsentCount);
    ASSERT_LT(answer.status.message().size(), 2048);
  }
  const Instant leaving = clock.Now();
  // The members of each connection leave one after the other, and those of different connections at
  // once, like processes.
  testing::OnThreads(8, [&](int connection) {
    for (int rank = connection; rank < kWorldSize; rank += 8) members[rank].reset();
  });
  std::cout << "all left in " << clock.Now() - leaving << std::endl;
  // A wait must not end before its timeout, nor long after it, also on a machine that others use.
  EXPECT_GE(first, options.timeout - absl::Milliseconds(300));
  EXPECT_LE(last, options.timeout + absl::Seconds(10));
}

TEST(MissingRanksTest, LateRanksGetTheOutcomeAndTheNextRoundWorks) {
  constexpr int kSmallWorld = 40;
  CoordinatorProcess coordinator({});
  ASSERT_TRUE(coordinator.Start().ok());
  Members members = JoinAll({Connect(coordinator.address())}, "late", kSmallWorld);
  for (const auto& member : members) ASSERT_NE(member, nullptr);

  client::RoundOptions options;
  options.timeout = absl::Milliseconds(500);
  Answers<BarrierAnswer> early(kSmallWorld - 3);
  for (int rank = 3; rank < kSmallWorld; ++rank) {
    members[rank]->async().Barrier(options, BarrierSlot(early, rank - 3));
  }
  ASSERT_TRUE(early.AwaitAll());
  EXPECT_EQ(early[0].report.missing.missing, (std::vector<RankRange>{{0, 2}}));

  options.timeout = absl::Seconds(60);
  for (int rank = 0; rank < 3; ++rank) {
    client::RoundReport report;
    const absl::Status status = members[rank]->Barrier(options, &report);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_EQ(report.number, early[0].report.number);
  }
  Answers<BarrierAnswer> all(kSmallWorld);
  for (int rank = 0; rank < kSmallWorld; ++rank) {
    members[rank]->async().Barrier(options, BarrierSlot(all, rank));
  }
  ASSERT_TRUE(all.AwaitAll());
  for (int rank = 0; rank < kSmallWorld; ++rank) {
    EXPECT_TRUE(all[rank].status.ok()) << all[rank].status;
    EXPECT_EQ(all[rank].report.number, early[0].report.number + 1);
  }
}

}  // namespace
}  // namespace cohort
