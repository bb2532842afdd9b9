#include "base/threads/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "base/testing/no_new_threads.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

TEST(ThreadTest, RunsTheBodyUnderItsName) {
  std::string seen;
  absl::StatusOr<std::thread> thread = StartThread("name-that-is-too-long", [&seen] {
    char name[16] = {};
    pthread_getname_np(pthread_self(), name, sizeof(name));
    seen = name;
  });
  ASSERT_TRUE(thread.ok()) << thread.status();
  thread->join();
  EXPECT_EQ(seen, "name-that-is-to");
}

TEST(ThreadTest, ARefusedThreadNamesTheLimitsAndDropsTheBody) {
  const auto held = std::make_shared<int>(0);
  const testing::NoNewThreads refuse;
  const absl::StatusOr<std::thread> thread = StartThread("cohort-alarm", [held] { FAIL(); });
  EXPECT_EQ(thread.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(thread.status().message()),
              AllOf(HasSubstr("cannot start thread cohort-alarm: Resource temporarily unavailable"),
                    ContainsRegex("the process has [0-9]+ threads"),
                    ContainsRegex("RLIMIT_NPROC ([0-9]+|unlimited) for user [0-9]+"),
                    ContainsRegex("RLIMIT_AS ([0-9]+|unlimited)"),
                    ContainsRegex("kernel.threads-max [0-9]+")));
  EXPECT_EQ(held.use_count(), 1);
}

// In a child process, whose user counts for itself.
TEST(ThreadDeathTest, SomeThreadsAreLeftToGrpc) {
  if (getuid() != 0) GTEST_SKIP() << "needs root, to count threads by user";
  const auto fill = [] {
    const rlimit limit = {64, 64};
    if (setrlimit(RLIMIT_NPROC, &limit) != 0) std::_Exit(2);
    if (setresuid(2'000'000 + getpid(), 0, 0) != 0) std::_Exit(3);
    ReserveThreadsForCalls(4);
    absl::Notification end;
    std::vector<std::thread> threads;
    absl::Status refused;
    while (refused.ok()) {
      absl::StatusOr<std::thread> thread =
          StartThread("cohort-many", [&end] { end.WaitForNotification(); });
      if (thread.ok()) threads.push_back(*std::move(thread));
      refused = thread.status();
    }
    std::fprintf(stderr, "%zu threads, %s\n", threads.size(), refused.ToString().c_str());
    std::fflush(stderr);
    std::_Exit(0);
  };
  // 64 less the first thread, a quarter, and four.
  EXPECT_EXIT(fill(), ::testing::ExitedWithCode(0),
              "43 threads, RESOURCE_EXHAUSTED: cannot start thread cohort-many: 20 threads are "
              "left, which gRPC may need; the process has 44 threads; limits: RLIMIT_NPROC 64");
}

TEST(ThreadTest, ThreadsStartAgainOnceTheLimitIsGone) {
  {
    const testing::NoNewThreads refuse;
    EXPECT_EQ(StartDetachedThread("cohort-once", [] { FAIL(); }).code(),
              absl::StatusCode::kResourceExhausted);
  }
  absl::Notification ran;
  ASSERT_TRUE(StartDetachedThread("cohort-once", [&ran] { ran.Notify(); }).ok());
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

// A thread that is detached while it ends may end the process: glibc's bug 19951.
TEST(ThreadTest, ADetachedThreadIsDetachedFromItsFirstMoment) {
  constexpr int kThreads = 200;
  std::atomic<int> detached{0};
  absl::BlockingCounter left(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    const absl::Status started = StartDetachedThread("cohort-once", [&detached, &left] {
      pthread_attr_t attributes;
      int state = PTHREAD_CREATE_JOINABLE;
      if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getdetachstate(&attributes, &state);
        pthread_attr_destroy(&attributes);
      }
      if (state == PTHREAD_CREATE_DETACHED) ++detached;
      left.DecrementCount();
    });
    ASSERT_TRUE(started.ok()) << started;
  }
  left.Wait();
  EXPECT_EQ(detached, kThreads);
}

}  // namespace
}  // namespace cohort
