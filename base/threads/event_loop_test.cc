#include "base/threads/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <memory>

#include "absl/synchronization/notification.h"
#include "base/testing/no_new_threads.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::Duration kSoon = absl::Seconds(30);

class CalledHandler final : public EventLoop::Handler {
 public:
  void OnEvents(uint32_t) override {
    if (!called.HasBeenNotified()) called.Notify();
  }
  absl::Notification called;
};

TEST(EventLoopTest, RunsTasksAndHandlersOnItsThread) {
  EventLoop loop("cohort-test");
  ASSERT_TRUE(loop.Start().ok());
  EXPECT_FALSE(loop.InLoop());
  absl::Notification ran;
  loop.Post([&] {
    EXPECT_TRUE(loop.InLoop());
    ran.Notify();
  });
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kSoon));
  const UniqueFd fd(eventfd(1, EFD_CLOEXEC));
  const auto handler = std::make_shared<CalledHandler>();
  ASSERT_TRUE(loop.Add(fd.get(), EPOLLIN, handler));
  EXPECT_TRUE(handler->called.WaitForNotificationWithTimeout(kSoon));
  loop.Remove(fd.get());
}

TEST(EventLoopTest, RunsATaskThatATaskPostedWithoutAnotherEvent) {
  EventLoop loop("cohort-test");
  absl::Notification ran;
  loop.Post([&] { loop.Post([&] { ran.Notify(); }); });
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kSoon)) << "the posted task still waits";
}

TEST(EventLoopTest, RunsLaterTasksInTheOrderOfTheirTimes) {
  EventLoop loop("cohort-test");
  const Instant start = Clock::Steady().Now();
  std::vector<int> order;
  absl::Notification ran;
  loop.PostAt(start + absl::Milliseconds(20), [&] {
    order.push_back(20);
    EXPECT_GE(Clock::Steady().Now(), start + absl::Milliseconds(20));
    ran.Notify();
  });
  loop.PostAt(start + absl::Milliseconds(5), [&] {
    order.push_back(5);
    loop.PostAt(start + absl::Milliseconds(10), [&] { order.push_back(10); });
  });
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kSoon));
  EXPECT_EQ(order, (std::vector<int>{5, 10, 20}));
}

TEST(EventLoopTest, ALoopThatEndsDropsLaterTasks) {
  const auto held = std::make_shared<int>(0);
  {
    EventLoop loop("cohort-test");
    loop.PostAt(Clock::Steady().Now() + absl::Hours(1), [held] { FAIL(); });
    EXPECT_EQ(held.use_count(), 2);
  }
  EXPECT_EQ(held.use_count(), 1);
}

TEST(EventLoopTest, WithoutAThreadItRefusesAndStartsOnceThereIsOne) {
  const UniqueFd fd(eventfd(1, EFD_CLOEXEC));
  const auto handler = std::make_shared<CalledHandler>();
  absl::Notification waiting, ran;
  std::unique_ptr<EventLoop> loop;
  {
    const testing::NoNewThreads refuse;
    loop = std::make_unique<EventLoop>("cohort-test");
    EXPECT_EQ(loop->Start().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_FALSE(loop->Add(fd.get(), EPOLLIN, handler));
    loop->Post([&] { waiting.Notify(); });
    loop->SetTicking(true);
    loop->SetTicking(false);
    const EventLoop dropped("cohort-test");
  }
  loop->Post([&] { ran.Notify(); });
  EXPECT_TRUE(waiting.WaitForNotificationWithTimeout(kSoon));
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kSoon));
  ASSERT_TRUE(loop->Add(fd.get(), EPOLLIN, handler));
  EXPECT_TRUE(handler->called.WaitForNotificationWithTimeout(kSoon));
  loop->Remove(fd.get());
}

}  // namespace
}  // namespace cohort
