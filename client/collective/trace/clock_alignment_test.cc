#include "client/collective/trace/clock_alignment.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"

namespace cohort::client {
namespace {

constexpr double kSecond = 1e9;

// Ranks with clocks of their own, which call all_reduce repeatedly.
struct World {
  std::vector<double> ahead;  // by clock, at the beginning
  std::vector<double> drift;

  // The clock's moment at a true time.
  Moment Show(int clock, double time) const {
    const auto at = static_cast<size_t>(clock);
    return {clock, std::llround(time + ahead[at] + drift[at] * time)};
  }
};

constexpr double kLatency = 5'000;  // of the fastest message, in nanoseconds

// `calls` over `span`: ranks come up to `skew` after each other. Each leaves when it knows of the
// last, which takes kLatency and sometimes much longer.
std::vector<SyncPoint> Call(const World& world, int calls, double span, double skew,
                            std::mt19937_64& random) {
  std::vector<SyncPoint> sync_points;
  std::uniform_real_distribution<double> late(0, skew);
  std::exponential_distribution<double> noise(1 / 20'000.0);
  for (int i = 0; i < calls; ++i) {
    const double start = span * i / calls;
    SyncPoint sync_point;
    double last = 0;
    for (size_t rank = 0; rank < world.ahead.size(); ++rank) {
      const double begin = start + late(random);
      last = std::max(last, begin);
      sync_point.begins.push_back(world.Show(static_cast<int>(rank), begin));
    }
    for (size_t rank = 0; rank < world.ahead.size(); ++rank) {
      sync_point.ends.push_back(
          world.Show(static_cast<int>(rank), last + kLatency + noise(random)));
    }
    sync_points.push_back(std::move(sync_point));
  }
  return sync_points;
}

TEST(ClockAlignmentTest, OneClockIsItsOwn) {
  const ClockAlignment alignment = AlignClocks(1, {});
  EXPECT_EQ(alignment.OnFirst({0, 1234}), 1234);
  EXPECT_EQ(alignment.clocks[0].least, 0);
  EXPECT_EQ(alignment.clocks[0].most, 0);
}

TEST(ClockAlignmentTest, BoundsHoldTheTruthWhateverTheClocksShow) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const size_t clocks = 2 + seed % 7;
    World world;
    std::uniform_real_distribution<double> off(-3 * kSecond, 3 * kSecond);
    for (size_t i = 0; i < clocks; ++i) world.ahead.push_back(off(random));
    world.drift.assign(clocks, 0);
    const auto sync_points = Call(world, 200, kSecond, 100'000, random);
    const ClockAlignment alignment = AlignClocks(static_cast<int>(clocks), sync_points);
    EXPECT_EQ(alignment.contradiction, 0);
    for (size_t i = 1; i < clocks; ++i) {
      const ClockEstimate& clock = alignment.clocks[i];
      const double truth = world.ahead[i] - world.ahead[0];
      EXPECT_LE(clock.least, truth + 2) << i;
      EXPECT_GE(clock.most, truth - 2) << i;
      EXPECT_EQ(clock.drift, 0) << i;
      EXPECT_NEAR(clock.ahead, truth, 2 * kLatency) << i;
    }
  }
}

TEST(ClockAlignmentTest, FindsDrift) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> off(-3 * kSecond, 3 * kSecond);
    std::uniform_real_distribution<double> faster(-50e-6, 50e-6);
    World world;
    for (size_t i = 0; i < 4; ++i) {
      world.ahead.push_back(off(random));
      world.drift.push_back(faster(random));
    }
    // 50 millionths of this are three times the length of a call.
    const double span = 60 * kSecond;
    const auto sync_points = Call(world, 500, span, 1'000'000, random);
    const ClockAlignment alignment = AlignClocks(4, sync_points);
    for (int clock = 1; clock < 4; ++clock) {
      for (const double time : {0.0, span / 2, span}) {
        const auto error = alignment.OnFirst(world.Show(clock, time)) - world.Show(0, time).at;
        EXPECT_LT(std::abs(error), 40'000) << "clock " << clock << " at " << time;
      }
      // `ahead` holds in the middle of what the clocks show, which is within 3 s of the true one.
      const auto at = static_cast<size_t>(clock);
      const double drift = world.drift[at] - world.drift[0];
      EXPECT_NEAR(alignment.clocks[at].ahead, world.ahead[at] - world.ahead[0] + drift * span / 2,
                  40'000 + std::abs(drift) * 3 * kSecond)
          << "clock " << clock;
    }
  }
}

TEST(ClockAlignmentTest, BoundsFollowThroughOtherClocks) {
  // Clock 2 has no sync point with the first one; both have one with clock 1, which is 100 ahead;
  // it is 1000.
  std::vector<SyncPoint> sync_points = {
      {{{0, 0}, {1, 110}}, {{0, 20}, {1, 120}}},
      {{{1, 5100}, {2, 6010}}, {{1, 5120}, {2, 6020}}},
  };
  const ClockAlignment alignment = AlignClocks(3, sync_points);
  EXPECT_EQ(alignment.clocks[1].least, 90);
  EXPECT_EQ(alignment.clocks[1].most, 120);
  EXPECT_EQ(alignment.clocks[2].least, 90 + 890);
  EXPECT_EQ(alignment.clocks[2].most, 120 + 920);
  EXPECT_EQ(alignment.OnFirst({2, 6010}), 6010 - 1010);
}

TEST(ClockAlignmentTest, OneSidedBoundsAreKept) {
  // Only broadcasts: no rank has the tensor before the root began.
  const auto ahead = [](int64_t root, int64_t other) {
    return AlignClocks(2, {{{{0, root}}, {{1, other}}}}).clocks[1];
  };
  EXPECT_EQ(ahead(100, 900).ahead, 0) << "as the calendars have it";
  EXPECT_EQ(ahead(100, 900).most, 800);
  EXPECT_TRUE(std::isinf(ahead(100, 900).least));
  EXPECT_EQ(ahead(1000, 100).ahead, -900) << "which they cannot be";
  const ClockEstimate unknown = AlignClocks(2, {}).clocks[1];
  EXPECT_EQ(unknown.ahead, 0);
  EXPECT_TRUE(std::isinf(unknown.least) && std::isinf(unknown.most));
}

TEST(ClockAlignmentTest, ClocksThatStepContradictThemselvesAndAreStillAligned) {
  std::mt19937_64 random(7);
  World before = {{0, 1'000'000}, {0, 0}};
  World after = {{0, 9'000'000}, {0, 0}};
  std::vector<SyncPoint> sync_points = Call(before, 100, kSecond, 50'000, random);
  for (SyncPoint& sync_point : Call(after, 100, kSecond, 50'000, random))
    sync_points.push_back(sync_point);
  const ClockAlignment alignment = AlignClocks(2, sync_points);
  EXPECT_GT(alignment.contradiction, 1'000'000);
  EXPECT_GT(alignment.clocks[1].ahead, 0);
  EXPECT_LT(alignment.clocks[1].ahead, 10'000'000);
}

}  // namespace
}  // namespace cohort::client
