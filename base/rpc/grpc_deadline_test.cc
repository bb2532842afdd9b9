#include "base/rpc/grpc_deadline.h"

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(GrpcDeadline, IsOfTheSteadyClock) {
  for (const absl::Duration time : {absl::Seconds(30), absl::InfiniteDuration()}) {
    EXPECT_EQ(GrpcDeadline(time).clock_type, GPR_CLOCK_MONOTONIC);
  }
}

TEST(GrpcDeadline, TimeLeftIsTheGivenTime) {
  const absl::Duration left = TimeLeft(GrpcDeadline(absl::Hours(2)));
  EXPECT_LE(left, absl::Hours(2));
  EXPECT_GT(left, absl::Hours(1));
}

TEST(GrpcDeadline, APastOneIsNow) {
  EXPECT_LE(TimeLeft(GrpcDeadline(-absl::InfiniteDuration())), absl::ZeroDuration());
  EXPECT_LE(TimeLeft(GrpcDeadline(-absl::Seconds(5))), absl::ZeroDuration());
}

TEST(GrpcDeadline, AFarOneIsAYear) {
  EXPECT_LE(TimeLeft(GrpcDeadline(absl::InfiniteDuration())), absl::Hours(24 * 365));
  EXPECT_GT(TimeLeft(GrpcDeadline(absl::InfiniteDuration())), absl::Hours(24 * 364));
}

TEST(GrpcDeadline, NoDeadlineLeavesInfiniteTime) {
  EXPECT_EQ(TimeLeft(gpr_inf_future(GPR_CLOCK_MONOTONIC)), absl::InfiniteDuration());
  EXPECT_EQ(TimeLeft(gpr_inf_future(GPR_CLOCK_REALTIME)), absl::InfiniteDuration());
}

}  // namespace
}  // namespace cohort
