#include "base/threads/mutex.h"

#include <thread>

#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

struct Shared {
  Mutex mutex;
  CondVar changed;
  int value ABSL_GUARDED_BY(mutex) = 0;
  int looks ABSL_GUARDED_BY(mutex) = 0;

  bool AwaitValue(int wanted, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto reached = [this, wanted]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
      ++looks;
      return value >= wanted;
    };
    return mutex.AwaitWithTimeout(absl::Condition(&reached), timeout);
  }
};

TEST(MutexTest, AwaitSeesWhatAnotherThreadLeavesAtUnlock) {
  Shared shared;
  std::thread other([&shared] {
    MutexLock lock(&shared.mutex);
    shared.value = 1;
  });
  {
    MutexLock lock(&shared.mutex);
    EXPECT_TRUE(shared.AwaitValue(1, kLong));
  }
  other.join();
}

TEST(MutexTest, AwaitSeesWhatAnotherThreadLeavesByWaiting) {
  Shared shared;
  // Each lets go of the lock by its wait alone, so each has to tell the other.
  std::thread other([&shared] {
    MutexLock lock(&shared.mutex);
    EXPECT_TRUE(shared.AwaitValue(1, kLong));
    shared.value = 2;
    EXPECT_TRUE(shared.AwaitValue(3, kLong));
    shared.value = 4;
    while (shared.value < 5) shared.changed.WaitWithTimeout(&shared.mutex, kLong);
  });
  {
    MutexLock lock(&shared.mutex);
    shared.value = 1;
    EXPECT_TRUE(shared.AwaitValue(2, kLong));
    shared.value = 3;
    EXPECT_TRUE(shared.AwaitValue(4, kLong));
    shared.value = 5;
    shared.changed.SignalAll();
  }
  other.join();
}

TEST(MutexTest, AWaiterDoesNotWakeOtherWaiters) {
  Shared shared;
  std::thread other([&shared] {
    MutexLock lock(&shared.mutex);
    EXPECT_FALSE(shared.AwaitValue(1, absl::Milliseconds(200)));
  });
  {
    MutexLock lock(&shared.mutex);
    EXPECT_FALSE(shared.AwaitValue(1, absl::Milliseconds(200)));
  }
  other.join();
  MutexLock lock(&shared.mutex);
  EXPECT_LT(shared.looks, 20);  // thousands, if each look were to cause the next
}

TEST(MutexTest, TimesOut) {
  Shared shared;
  MutexLock lock(&shared.mutex);
  EXPECT_FALSE(shared.AwaitValue(1, absl::Milliseconds(1)));
  EXPECT_FALSE(shared.AwaitValue(1, -absl::InfiniteDuration()));
  const absl::Time start = absl::Now();
  while (!shared.changed.WaitWithTimeout(&shared.mutex, absl::Milliseconds(1))) {
    ASSERT_LT(absl::Now() - start, kLong);
  }
}

}  // namespace
}  // namespace cohort
