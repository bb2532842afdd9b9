#include "client/collective/async_calls.h"

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/testing/no_new_threads.h"
#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr absl::Duration kTimeout = absl::Seconds(60);

// A call that has begun, and ends when it is released.
struct Held {
  absl::Notification begun;
  absl::Notification let_go;

  AsyncCalls::Call Make(absl::Status result = absl::OkStatus()) {
    return [this, result](Group&) {
      begun.Notify();
      let_go.WaitForNotification();
      return result;
    };
  }
};

TEST(AsyncCallsTest, RunInTheOrderInWhichTheyWereStarted) {
  LoneGroup group;
  AsyncCalls calls(group);
  std::vector<int> order;
  std::vector<int> expected;
  PendingCall last;
  for (int i = 0; i < 200; ++i) {
    expected.push_back(i);
    last = calls.Start([&order, i](Group&) {
      order.push_back(i);
      return absl::OkStatus();
    });
  }
  EXPECT_EQ(last.Wait(kTimeout), absl::OkStatus());
  EXPECT_EQ(order, expected);
}

TEST(AsyncCallsTest, ReportTheirState) {
  LoneGroup group;
  Held held;
  AsyncCalls calls(group);
  const PendingCall call = calls.Start(held.Make(absl::DataLossError("spoilt")));
  held.begun.WaitForNotification();
  EXPECT_FALSE(call.Test().has_value());
  EXPECT_EQ(call.Wait(absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_FALSE(call.Test().has_value());
  held.let_go.Notify();
  EXPECT_EQ(call.Wait(kTimeout), absl::DataLossError("spoilt"));
  EXPECT_EQ(call.Test(), absl::DataLossError("spoilt"));
  EXPECT_EQ(PendingCall().Wait(), absl::OkStatus());
}

TEST(AsyncCallsTest, KeepTheirArgumentsUntilTheyEnd) {
  LoneGroup group;
  Held held;
  AsyncCalls calls(group);
  auto given = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = given;
  const PendingCall call = calls.Start(
      [given = std::move(given), run = held.Make()](Group& group) { return run(group); });
  held.begun.WaitForNotification();
  EXPECT_FALSE(watched.expired());
  held.let_go.Notify();
  EXPECT_EQ(call.Wait(kTimeout), absl::OkStatus());
  EXPECT_TRUE(watched.expired());
}

TEST(AsyncCallsTest, GoOnWithoutAHandle) {
  LoneGroup group;
  Held held;
  auto given = std::make_shared<std::vector<int>>(1000, 1);
  const std::weak_ptr<std::vector<int>> watched = given;
  int sum = 0;
  AsyncCalls calls(group);
  // One is dropped while it runs, one before it has begun.
  calls.Start(held.Make());
  calls.Start([given = std::move(given), &sum](Group&) {
    for (const int number : *given) sum += number;
    return absl::InternalError("an unread error");
  });
  const PendingCall last = calls.Start([](Group&) { return absl::OkStatus(); });
  held.begun.WaitForNotification();
  EXPECT_FALSE(watched.expired());
  held.let_go.Notify();
  EXPECT_EQ(last.Wait(kTimeout), absl::OkStatus());
  EXPECT_EQ(sum, 1000);
  EXPECT_TRUE(watched.expired());
  EXPECT_THAT(group.aborts, IsEmpty());
}

TEST(AsyncCallsTest, CancelAbortsTheGroupUnlessTheCallIsOver) {
  LoneGroup group;
  Held held;
  AsyncCalls calls(group);
  const PendingCall done = calls.Start([](Group&) { return absl::OkStatus(); });
  EXPECT_EQ(done.Wait(kTimeout), absl::OkStatus());
  done.Cancel();
  EXPECT_THAT(group.aborts, IsEmpty());
  const PendingCall running = calls.Start(held.Make());
  held.begun.WaitForNotification();
  running.Cancel();
  EXPECT_THAT(group.aborts, ElementsAre(HasSubstr("cancelled")));
  held.let_go.Notify();
  EXPECT_EQ(running.Wait(kTimeout), absl::OkStatus());
}

TEST(AsyncCallsTest, DoneCallbacksGetTheStatusOnce) {
  LoneGroup group;
  Held held;
  std::vector<absl::Status> seen;
  const auto see = [&seen](const absl::Status& status) { seen.push_back(status); };
  auto calls = std::make_unique<AsyncCalls>(group);
  const PendingCall call = calls->Start(held.Make(absl::DataLossError("spoilt")));
  held.begun.WaitForNotification();
  // The status is available before the callback runs.
  std::optional<absl::Status> tested;
  call.AddDoneCallback([call, &tested](const absl::Status&) { tested = call.Test(); });
  call.AddDoneCallback(see);
  call.AddDoneCallback(see);
  held.let_go.Notify();
  calls.reset();  // waits for the thread
  EXPECT_THAT(seen, ElementsAre(absl::DataLossError("spoilt"), absl::DataLossError("spoilt")));
  EXPECT_EQ(tested, absl::DataLossError("spoilt"));
  // The call is over: they run at once.
  call.AddDoneCallback(see);
  EXPECT_EQ(seen.size(), 3);
  PendingCall().AddDoneCallback(see);
  EXPECT_EQ(seen.back(), absl::OkStatus());
}

class RecordingGroup : public LoneGroup {
 public:
  absl::Notification aborted;
  void Abort(const absl::Status& cause) override {
    LoneGroup::Abort(cause);
    aborted.Notify();
  }
};

TEST(AsyncCallsTest, DestructionDropsQueuedCallsAndAbortsTheGroup) {
  RecordingGroup group;
  Held held;
  auto calls = std::make_unique<AsyncCalls>(group);
  const PendingCall running = calls->Start(held.Make());
  held.begun.WaitForNotification();
  const PendingCall behind = calls->Start([](Group&) { return absl::OkStatus(); });
  absl::Status seen;
  behind.AddDoneCallback([&seen](const absl::Status& status) { seen = status; });
  std::thread end([&calls] { calls.reset(); });
  EXPECT_TRUE(group.aborted.WaitForNotificationWithTimeout(kTimeout));
  held.let_go.Notify();
  end.join();
  EXPECT_EQ(running.Wait(kTimeout), absl::OkStatus());
  EXPECT_EQ(behind.Wait(kTimeout).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(seen.code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(group.aborts, ElementsAre(HasSubstr("dropped")));
}

TEST(AsyncCallsTest, WithoutAThreadACallEndsAndTheNextRuns) {
  LoneGroup group;
  std::unique_ptr<AsyncCalls> calls;
  {
    const cohort::testing::NoNewThreads refuse;
    calls = std::make_unique<AsyncCalls>(group);
    const PendingCall refused = calls->Start([](Group&) -> absl::Status {
      ADD_FAILURE() << "it ran";
      return absl::OkStatus();
    });
    EXPECT_TRUE(absl::IsResourceExhausted(refused.Wait(absl::Seconds(30)))) << refused.Wait();
  }
  EXPECT_TRUE(calls->Start([](Group&) { return absl::OkStatus(); }).Wait(absl::Seconds(30)).ok());
}

}  // namespace
}  // namespace cohort::client
