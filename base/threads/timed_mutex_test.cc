#include "base/threads/timed_mutex.h"

#include <atomic>
#include <thread>

#include "absl/time/time.h"
#include "base/threads/notification.h"
#include "base/threads/wait_hook.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

// Another thread that has the lock, until this object ends or lets it go.
class Holder {
 public:
  explicit Holder(TimedMutex& mutex)
      : thread_([this, &mutex] {
          const TimedMutexLock lock(&mutex);
          has_it_.Notify();
          let_go_.WaitWithTimeout(kLong);
        }) {
    EXPECT_TRUE(has_it_.WaitWithTimeout(kLong));
  }
  ~Holder() {
    LetGo();
    thread_.join();
  }
  void LetGo() {
    if (!told_.exchange(true)) let_go_.Notify();
  }

 private:
  std::atomic<bool> told_{false};
  Notification has_it_, let_go_;
  std::thread thread_;
};

TEST(TimedMutexTest, AThreadGivesUp) {
  TimedMutex mutex;
  const Holder holder(mutex);
  EXPECT_FALSE(mutex.LockFor(absl::Milliseconds(1)));
  EXPECT_FALSE(mutex.LockFor(absl::ZeroDuration()));
  EXPECT_FALSE(mutex.LockFor(-absl::InfiniteDuration()));
}

TEST(TimedMutexTest, AThreadGetsItWhenAnotherLetsGo) {
  TimedMutex mutex;
  Holder holder(mutex);
  holder.LetGo();
  ASSERT_TRUE(mutex.LockFor(kLong));
  const TimedMutexLock lock(&mutex, std::adopt_lock);
}

TEST(TimedMutexTest, AWaitingThreadRunsItsHook) {
  TimedMutex mutex;
  Holder holder(mutex);
  const auto let_go = [&holder] { holder.LetGo(); };
  const WaitHook hook(let_go);
  const TimedMutexLock lock(&mutex);
}

TEST(TimedMutexTest, AHookLeavesTheTimeoutAsItIs) {
  TimedMutex mutex;
  Holder holder(mutex);
  int runs = 0;
  const auto let_go_late = [&] {
    if (++runs == 40) holder.LetGo();
  };
  const WaitHook hook(let_go_late);
  EXPECT_FALSE(mutex.LockFor(absl::Milliseconds(120)));
  EXPECT_GE(runs, 1);
}

}  // namespace
}  // namespace cohort
