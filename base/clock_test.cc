#include "base/clock.h"

#include <cstdlib>

#include "gtest/gtest.h"

namespace cohort {
namespace {

const Clock* seen = nullptr;

TEST(ClockTest, WorksWhileTheProcessEnds) {
  EXPECT_EXIT(
      {
        // Runs behind the destructors of all that is made after this.
        std::atexit([] { std::_Exit(seen->Now() > absl::UnixEpoch() ? 0 : 1); });
        seen = &Clock::Steady();
        std::exit(2);
      },
      testing::ExitedWithCode(0), "");
}

TEST(ClockTest, DoesNotGoBack) {
  const Instant before = Clock::Steady().Now();
  EXPECT_GE(Clock::Steady().Now(), before);
}

}  // namespace
}  // namespace cohort
