#include "coordinator/service/engine/awake_clock.h"

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

constexpr absl::Duration kPause = absl::Milliseconds(200);

class SetClock final : public Clock {
 public:
  Instant Now() const override { return absl::FromUnixNanos(nanos_.load()); }
  void Advance(absl::Duration by) { nanos_.fetch_add(absl::ToInt64Nanoseconds(by)); }

 private:
  std::atomic<int64_t> nanos_{1000};
};

class AwakeClockTest : public ::testing::Test {
 protected:
  // Time that counts for both.
  void Pass(absl::Duration by) {
    suspend_.Advance(by);
    steady_.Advance(by);
  }
  absl::Duration Since(Instant start) const { return clock_.Now() - start; }

  SetClock steady_;
  SetClock suspend_;
  const AwakeClock clock_{steady_, suspend_, kPause};
};

TEST_F(AwakeClockTest, GoesOnWhileItIsRead) {
  const Instant start = clock_.Now();
  for (int i = 1; i <= 100; ++i) {
    Pass(absl::Milliseconds(100));
    ASSERT_EQ(Since(start), absl::Milliseconds(100) * i);
  }
  EXPECT_EQ(clock_.asleep(), absl::ZeroDuration());
}

TEST_F(AwakeClockTest, LeavesOutALongGap) {
  const Instant start = clock_.Now();
  Pass(absl::Seconds(7));
  EXPECT_EQ(Since(start), kPause);
  EXPECT_EQ(clock_.asleep(), absl::Seconds(7) - kPause);
  Pass(absl::Milliseconds(30));
  EXPECT_EQ(Since(start), kPause + absl::Milliseconds(30));
  Pass(absl::Hours(3));
  EXPECT_EQ(Since(start), kPause * 2);
}

TEST_F(AwakeClockTest, NeverGoesBackAfterAGap) {
  const Instant start = clock_.Now();
  // Too soon for another look at the gap, but a reader has returned it.
  Pass(absl::Milliseconds(49));
  const Instant last = clock_.Now();
  EXPECT_EQ(last - start, absl::Milliseconds(49));
  Pass(absl::Seconds(7));
  EXPECT_GE(clock_.Now(), last);
}

TEST_F(AwakeClockTest, KnowsASuspensionThatTheSteadyClockDoesNotCount) {
  const Instant start = clock_.Now();
  suspend_.Advance(absl::Hours(1));
  steady_.Advance(absl::Milliseconds(60));
  EXPECT_EQ(Since(start), absl::Milliseconds(60));
  EXPECT_EQ(clock_.asleep(), absl::Hours(1) - kPause);
}

TEST(AwakeClock, WithoutAPauseLeavesNothingOut) {
  SetClock steady;
  const AwakeClock clock(steady, steady, absl::InfiniteDuration());
  const Instant start = clock.Now();
  steady.Advance(absl::Hours(1000));
  EXPECT_EQ(clock.Now() - start, absl::Hours(1000));
  EXPECT_EQ(clock.asleep(), absl::ZeroDuration());
}

TEST(AwakeClock, NoReaderSeesItGoBackOrJump) {
  SetClock steady;
  const AwakeClock clock(steady, steady, kPause);
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 3; ++i) {
    readers.emplace_back([&] {
      Instant last = clock.Now();
      while (!stop) {
        const Instant now = clock.Now();
        // Each iteration of the loop below lets the clock go on by one pause at most.
        if (now < last) ++wrong;
        last = now;
      }
    });
  }
  const Instant start = clock.Now();
  constexpr int kSleeps = 2000;
  for (int i = 0; i < kSleeps; ++i) steady.Advance(absl::Seconds(5));
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(clock.Now() - start, kPause * kSleeps);
}

}  // namespace
}  // namespace cohort::coordinator
