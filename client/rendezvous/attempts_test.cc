#include "client/rendezvous/attempts.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::HasSubstr;

ConnectionOptions Patient() {
  ConnectionOptions options;
  options.address = "coordinator:7700";
  options.min_backoff = absl::Seconds(600);
  options.max_backoff = absl::Seconds(600);
  return options;
}

const grpc::Status kAway(grpc::StatusCode::UNAVAILABLE, "connection refused");

TEST(AttemptsTest, APauseNeverOutlivesTheDeadline) {
  constexpr absl::Duration kLeft = absl::Seconds(60);
  const Instant deadline = Clock::Steady().Now() + kLeft;
  absl::Duration told;
  CallLimits limits{"barrier", deadline};
  limits.on_repeat = [&told](const grpc::Status&, absl::Duration pause) { told = pause; };
  const ConnectionOptions options = Patient();
  Attempts attempts(options, limits);
  absl::Status result;
  const std::optional<absl::Duration> pause = attempts.Judge(kAway, &result);
  ASSERT_TRUE(pause.has_value()) << result;
  EXPECT_LE(*pause, kLeft);
  EXPECT_GT(*pause, absl::ZeroDuration());
  EXPECT_EQ(told, *pause);
}

TEST(AttemptsTest, AfterTheDeadlineTheCallGivesUpAndSaysWhy) {
  const ConnectionOptions options = Patient();
  Attempts attempts(options, CallLimits{"barrier", Clock::Steady().Now()});
  absl::Status result;
  EXPECT_FALSE(attempts.Judge(kAway, &result).has_value());
  EXPECT_EQ(result.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.message()), HasSubstr("coordinator:7700 is away: barrier"));
}

}  // namespace
}  // namespace cohort::client
