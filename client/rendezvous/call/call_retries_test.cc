#include "client/rendezvous/call/call_retries.h"

#include <functional>
#include <string>
#include <thread>

#include "absl/synchronization/notification.h"
#include "base/clock.h"
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

TEST(CallRetriesTest, APauseNeverOutlivesTheDeadline) {
  constexpr absl::Duration kLeft = absl::Seconds(60);
  const Instant deadline = Clock::Steady().Now() + kLeft;
  absl::Duration reported;
  CallLimits limits{"barrier", deadline};
  limits.on_repeat = [&reported](const grpc::Status&, absl::Duration pause) { reported = pause; };
  const ConnectionOptions options = Patient();
  CallRetries retries(options, limits);
  absl::Status result;
  const std::optional<absl::Duration> pause = retries.Judge(kAway, &result);
  ASSERT_TRUE(pause.has_value()) << result;
  EXPECT_LE(*pause, kLeft);
  EXPECT_GT(*pause, absl::ZeroDuration());
  EXPECT_EQ(reported, *pause);
}

TEST(CallRetriesTest, ALaterAttemptHasLessTime) {
  const ConnectionOptions options = Patient();
  CallRetries retries(options, CallLimits{"barrier", Clock::Steady().Now() + absl::Seconds(60)});
  const CallRetries::Attempt first = retries.Begin();
  const CallRetries::Attempt second = retries.Begin();
  EXPECT_LT(second.timeout, first.timeout);
  EXPECT_LT(second.wait, first.wait);
}

TEST(CallRetriesTest, AfterTheDeadlineTheCallGivesUpAndSaysWhy) {
  const ConnectionOptions options = Patient();
  CallRetries retries(options, CallLimits{"barrier", Clock::Steady().Now()});
  absl::Status result;
  EXPECT_FALSE(retries.Judge(kAway, &result).has_value());
  EXPECT_EQ(result.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(result.message()), HasSubstr("coordinator:7700 is away: barrier"));
}

TEST(CallRetriesTest, ACallThatIsNotRepeatedGivesUpAtItsFirstFailure) {
  CallLimits limits{"leave", Clock::Steady().Now() + absl::Seconds(60)};
  limits.repeat = false;
  const ConnectionOptions options = Patient();
  CallRetries retries(options, limits);
  absl::Status result;
  EXPECT_FALSE(retries.Judge(kAway, &result).has_value());
  EXPECT_EQ(result.code(), absl::StatusCode::kUnavailable) << result;
}

// `end` ends the pause of the interruption with the cancellation.
void ExpectEndOfPause(
    const std::function<void(Interruption&, Cancellation&, const absl::Status&)>& end) {
  // The pause has begun in most of the rounds, not in all.
  for (int round = 0; round < 50; ++round) {
    Interruption interruption;
    Cancellation cancellation;
    absl::Notification about_to_sleep;
    absl::Status slept;
    std::thread sleeper([&] {
      about_to_sleep.Notify();
      slept = interruption.Sleep(absl::Seconds(60), CallCancellations(&cancellation));
    });
    about_to_sleep.WaitForNotification();
    std::this_thread::yield();
    const Instant raised = Clock::Steady().Now();
    end(interruption, cancellation, absl::AbortedError("left"));
    sleeper.join();
    EXPECT_EQ(slept, absl::AbortedError("left"));
    ASSERT_LT(Clock::Steady().Now() - raised, absl::Seconds(30)) << "the pause went on";
  }
}

TEST(InterruptionTest, EndsAPauseAtOnce) {
  ExpectEndOfPause([](Interruption& interruption, Cancellation&, const absl::Status& reason) {
    interruption.Raise(reason);
  });
}

TEST(InterruptionTest, ACancellationEndsAPauseAtOnce) {
  ExpectEndOfPause([](Interruption&, Cancellation& cancellation, const absl::Status& reason) {
    cancellation.Cancel(reason);
  });
}

}  // namespace
}  // namespace cohort::client
