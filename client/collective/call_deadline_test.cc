#include "client/collective/call_deadline.h"

#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

TEST(CallDeadlineTest, CoversTheWholeCall) {
  constexpr absl::Duration kTimeout = absl::Seconds(60);
  CallOptions options;
  options.timeout = kTimeout;
  const CallDeadline deadline(options);
  const Instant begin = Clock::Steady().Now();
  while (Clock::Steady().Now() == begin) {
  }
  const absl::Duration left = *deadline.Left().timeout;
  EXPECT_LT(left, kTimeout);
  EXPECT_GT(left, absl::ZeroDuration());

  options.timeout = absl::ZeroDuration();
  EXPECT_EQ(CallDeadline(options).Left().timeout, absl::ZeroDuration());
  EXPECT_EQ(CallDeadline(options).Left(absl::Seconds(1)).timeout, absl::Seconds(1));
  options.timeout.reset();
  EXPECT_FALSE(CallDeadline(options).Left().timeout.has_value());
}

TEST(CallDeadlineTest, OnlyCallsOnAGpuHaveTheStream) {
  CallOptions options;
  options.stream = nullptr;
  const CallDeadline deadline(options);
  EXPECT_TRUE(deadline.Left().stream.has_value());
  EXPECT_TRUE(deadline.LeftFor(Device::Cuda(0)).stream.has_value());
  EXPECT_FALSE(deadline.LeftFor(Device::Host()).stream.has_value());
  EXPECT_FALSE(deadline.LeftOnHost().stream.has_value());
}

}  // namespace
}  // namespace cohort::client
