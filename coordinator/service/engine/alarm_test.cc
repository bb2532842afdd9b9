#include "coordinator/service/engine/alarm.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

// Counts how often it rang. Ring returns the instant at which it rings next.
class Bell {
 public:
  Instant Ring() {
    std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    changed_.notify_all();
    return absl::InfiniteFuture();
  }
  bool AwaitCount(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20), [&] { return count_ >= count; });
  }
  int count() {
    std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

Instant In(absl::Duration time) { return Clock::Steady().Now() + time; }

TEST(Alarm, RingsImmediatelyAndThenAtTheGivenInstant) {
  Bell bell;
  Alarm alarm(Clock::Steady(), [&] { return bell.Ring(); });
  ASSERT_TRUE(alarm.Start().ok());
  ASSERT_TRUE(bell.AwaitCount(1));
  alarm.MoveTo(In(absl::Hours(1)));
  alarm.MoveTo(In(absl::Milliseconds(5)));
  ASSERT_TRUE(bell.AwaitCount(2));
  alarm.Stop();
  EXPECT_EQ(bell.count(), 2);
}

TEST(Alarm, RingsAgainWhenItAskedFor) {
  Bell bell;
  Alarm alarm(Clock::Steady(), [&] {
    bell.Ring();
    return In(absl::Milliseconds(1));
  });
  ASSERT_TRUE(alarm.Start().ok());
  EXPECT_TRUE(bell.AwaitCount(5));
}

TEST(Alarm, NoMoveIsLostWhileItRings) {
  Bell bell;
  Alarm alarm(Clock::Steady(), [&] { return bell.Ring(); });
  ASSERT_TRUE(alarm.Start().ok());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        const int before = bell.count();
        alarm.MoveTo(In(absl::ZeroDuration()));
        ASSERT_TRUE(bell.AwaitCount(before + 1));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  alarm.Stop();
  alarm.MoveTo(In(absl::ZeroDuration()));
}

}  // namespace
}  // namespace cohort::coordinator
