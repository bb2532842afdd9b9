#include "worker/group/flight_recorder/tensor_wait_reporter.h"

#include <cstdint>
#include <thread>

#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/group/flight_recorder/tick_clock.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class TensorWaitReporterTest : public testing::Test {
 protected:
  TensorWaitReporterTest() {
    reporter_.Start([this] {
      return TensorWaitReporter::Look{recorder_.Read(), recorder_.ReadWaits(8, 8)};
    });
  }
  void Begin(Collective collective, int root = -1) {
    recorder_.Begin(generation_, collective, DataType::kF32, 8, root, TickClock::Ticks());
  }
  void Call(Collective collective) {
    Begin(collective);
    recorder_.End(absl::StatusCode::kOk);
  }

  int64_t generation_ = 3;
  FlightRecorder recorder_;
  TensorWaitReporter reporter_;
};

TEST_F(TensorWaitReporterTest, ReportsTheLastOperationAndTheOpenOne) {
  client::TensorReport report = reporter_.Report();
  EXPECT_TRUE(report.moves_tensors);
  EXPECT_FALSE(report.last.has_value() || report.open.has_value());
  Call(Collective::kAllReduce);
  Call(Collective::kBroadcast);
  report = reporter_.Report();
  ASSERT_TRUE(report.last.has_value());
  EXPECT_FALSE(report.open.has_value());
  EXPECT_EQ(report.last->number, 2);
  EXPECT_EQ(report.last->generation, 3);
  EXPECT_EQ(report.last->collective, Collective::kBroadcast);
  EXPECT_TRUE(report.last->ended.has_value());
  // A message has no number: the last call of all ranks is still #2.
  Begin(Collective::kExchange, 5);
  report = reporter_.Report();
  EXPECT_EQ(report.last->number, 2);
  ASSERT_TRUE(report.open.has_value());
  EXPECT_EQ(report.open->number, 0);
  EXPECT_EQ(report.open->collective, Collective::kExchange);
  EXPECT_EQ(report.open->peer, 5);
  EXPECT_EQ(report.open->state, "running");
  EXPECT_FALSE(report.open->ended.has_value());
}

TEST_F(TensorWaitReporterTest, TimesCountBackFromTheReport) {
  constexpr absl::Duration kStep = absl::Milliseconds(20);
  constexpr absl::Duration kRounding = absl::Milliseconds(2);
  const auto await = [](Instant until) {
    while (Clock::Steady().Now() < until) std::this_thread::yield();
  };
  const Instant before = Clock::Steady().Now();
  Begin(Collective::kAllReduce);
  const Instant begun = Clock::Steady().Now();
  await(begun + kStep);
  const Instant running = Clock::Steady().Now();
  const client::TensorReport open = reporter_.Report();
  ASSERT_TRUE(open.open.has_value());
  EXPECT_GE(open.open->begun, running - begun - kRounding);
  EXPECT_LE(open.open->begun, Clock::Steady().Now() - before + kRounding);
  const Instant ending = Clock::Steady().Now();
  recorder_.End(absl::StatusCode::kOk);
  const Instant ended = Clock::Steady().Now();
  await(ended + kStep);
  const Instant later = Clock::Steady().Now();
  const client::TensorReport report = reporter_.Report();
  const Instant reported = Clock::Steady().Now();
  ASSERT_TRUE(report.last.has_value() && report.last->ended.has_value());
  EXPECT_GE(report.last->begun, later - begun - kRounding);
  EXPECT_LE(report.last->begun, reported - before + kRounding);
  EXPECT_GE(*report.last->ended, later - ended - kRounding);
  EXPECT_LE(*report.last->ended, reported - ending + kRounding);
}

// A call on a device ends there, after its rank has returned from it.
TEST_F(TensorWaitReporterTest, ACallOnADeviceEndsWhenTheDeviceIsDone) {
  Begin(Collective::kAllReduce);
  const uint64_t number = recorder_.Put();
  recorder_.End(absl::StatusCode::kOk);
  const Instant now = Clock::Steady().Now();
  recorder_.Done(number, now - absl::Seconds(5), now - absl::Seconds(3));
  const client::TensorReport report = reporter_.Report();
  ASSERT_TRUE(report.last.has_value() && report.last->ended.has_value());
  EXPECT_GE(*report.last->ended, absl::Seconds(3));
  EXPECT_LE(*report.last->ended, Clock::Steady().Now() - now + absl::Seconds(3));
}

TEST_F(TensorWaitReporterTest, TheOldestOfSeveralCallsOnADeviceIsOpen) {
  Begin(Collective::kAllReduce);
  recorder_.Put();
  recorder_.End(absl::StatusCode::kOk);
  Begin(Collective::kBroadcast);
  recorder_.Put();
  recorder_.End(absl::StatusCode::kOk);
  const client::TensorReport report = reporter_.Report();
  ASSERT_TRUE(report.last.has_value() && report.open.has_value());
  EXPECT_EQ(report.last->number, 2);
  EXPECT_EQ(report.open->number, 1);
  EXPECT_EQ(report.open->state, "enqueued");
}

TEST_F(TensorWaitReporterTest, ReportsTheRanksThatItWaitsForInTheSameCall) {
  recorder_.waits().Add(RankSet::FromRanges({{6, 6}}), absl::Hours(1));  // long ago
  Begin(Collective::kAllReduce);
  EXPECT_THAT(reporter_.Report().waits_for, IsEmpty());
  recorder_.waits().Add(RankSet::FromRanges({{2, 2}, {4, 4}}), absl::Hours(1));
  EXPECT_THAT(reporter_.Report().waits_for, ElementsAre(RankRange{2, 2}, RankRange{4, 4}));
  EXPECT_THAT(reporter_.Report().waits_for, IsEmpty()) << "since then it has not slept";
  recorder_.waits().Add(RankSet::FromRanges({{2, 2}}), absl::Hours(1));
  recorder_.End(absl::StatusCode::kOk);
  Begin(Collective::kAllReduce);
  EXPECT_THAT(reporter_.Report().waits_for, IsEmpty()) << "that was in another call";
}

TEST_F(TensorWaitReporterTest, AnOpenCallOfAnOlderGenerationIsOver) {
  Begin(Collective::kAllReduce);  // its rank never returned from it
  generation_ = 4;
  Call(Collective::kBroadcast);
  const client::TensorReport report = reporter_.Report();
  EXPECT_FALSE(report.open.has_value());
  EXPECT_EQ(report.last->generation, 4);
  EXPECT_EQ(report.last->number, 1);
}

TEST_F(TensorWaitReporterTest, WithoutARecordThereAreNoOperations) {
  Begin(Collective::kAllReduce);
  reporter_.Stop();
  const client::TensorReport report = reporter_.Report();
  EXPECT_TRUE(report.moves_tensors);
  EXPECT_FALSE(report.last.has_value() || report.open.has_value());
}

}  // namespace
}  // namespace cohort::worker
