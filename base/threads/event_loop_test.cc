#include "base/threads/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "base/clock.h"
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
  loop.PostAt(start + absl::Seconds(1), [&] {
    order.push_back(1000);
    EXPECT_GE(Clock::Steady().Now(), start + absl::Seconds(1));
    ran.Notify();
  });
  loop.PostAt(start + absl::Milliseconds(5), [&] {
    order.push_back(5);
    loop.PostAt(start + absl::Milliseconds(10), [&] { order.push_back(10); });
  });
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kSoon));
  EXPECT_EQ(order, (std::vector<int>{5, 10, 1000}));
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

// Answers each byte from one thread to the other.
TEST(EventLoopTest, EventsAreHandledWhileTheLoopLooksForMore) {
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd ours(pair[0]), its(pair[1]);
  class Echo final : public EventLoop::Handler {
   public:
    explicit Echo(int fd) : fd_(fd) {}
    void OnEvents(uint32_t) override {
      char byte = 0;
      EXPECT_EQ(read(fd_, &byte, 1), 1);
      EXPECT_EQ(write(fd_, &byte, 1), 1);
    }

   private:
    const int fd_;
  };
  EventLoop loop("cohort-test");
  loop.SetBusyWait(absl::Seconds(5));  // so long that each byte arrives meanwhile
  ASSERT_TRUE(loop.Add(its.get(), EPOLLIN, std::make_shared<Echo>(its.get())));
  for (char byte = 'a'; byte <= 'z'; ++byte) {
    char got = 0;
    ASSERT_EQ(write(ours.get(), &byte, 1), 1);
    ASSERT_EQ(read(ours.get(), &got, 1), 1);
    EXPECT_EQ(got, byte);
  }
  absl::Notification ran;
  loop.Post([&] { ran.Notify(); });
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(kSoon));
  loop.Remove(its.get());
  loop.SetBusyWait(absl::ZeroDuration());
}

class Taker final : public EventLoop::Handler {
 public:
  explicit Taker(int fd) : fd_(fd) {}
  void OnEvents(uint32_t) override {
    uint64_t count = 0;
    if (read(fd_, &count, sizeof(count)) > 0) ++taken;
  }
  std::atomic<int> taken{0};

 private:
  const int fd_;
};

bool Sleeps(pid_t thread) {
  std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/stat"));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  return absl::StrContains(text, ") S ");
}

// 200 events that come while the loop sleeps: it looks for more after few of them, and not for 2 ms
// after each.
TEST(EventLoopTest, LooksThatFindNothingGetRare) {
  EventLoop loop("cohort-test");
  loop.SetBusyWait(absl::Milliseconds(2));
  const UniqueFd fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  const auto taker = std::make_shared<Taker>(fd.get());
  ASSERT_TRUE(loop.Add(fd.get(), EPOLLIN, taker));
  std::atomic<pid_t> thread{0};
  loop.Post([&] { thread = static_cast<pid_t>(syscall(SYS_gettid)); });
  const Instant end = Clock::Steady().Now() + kSoon;
  for (int events = 0; events < 200; ++events) {
    while (thread == 0 || taker->taken < events || !Sleeps(thread)) {
      ASSERT_LT(Clock::Steady().Now(), end);
      std::this_thread::yield();
    }
    ASSERT_EQ(eventfd_write(fd.get(), 1), 0);
  }
  absl::Duration used;
  absl::Notification ran;
  loop.Post([&] {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    used = absl::DurationFromTimespec(time);
    ran.Notify();
  });
  ASSERT_TRUE(ran.WaitForNotificationWithTimeout(kSoon));
  EXPECT_LT(used, absl::Milliseconds(60));
  loop.Remove(fd.get());
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
