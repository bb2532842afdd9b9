#include "client/rendezvous/call/connection/timer_queue.h"

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "base/threads/mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

// A notification like absl's that ThreadSanitizer sees.
class Done {
 public:
  void Notify() {
    MutexLock lock(&mutex_);
    done_ = true;
  }
  bool Await() {
    MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&done_), absl::Seconds(10));
  }

 private:
  Mutex mutex_;
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
};

TEST(TimerQueue, RunsInOrderOfTimeThenOfArrival) {
  TimerQueue queue;
  std::vector<int> order;
  Done done;
  queue.After(absl::Milliseconds(40), [&] {
    order.push_back(3);
    done.Notify();
  });
  queue.After(absl::Milliseconds(20), [&] { order.push_back(2); });
  queue.Post([&] { order.push_back(0); });
  queue.Post([&] { order.push_back(1); });
  ASSERT_TRUE(done.Await());
  EXPECT_THAT(order, testing::ElementsAre(0, 1, 2, 3));
}

TEST(TimerQueue, CancelledTasksDoNotRun) {
  bool ran = false;
  {
    TimerQueue queue;
    const uint64_t id = queue.After(absl::Hours(1), [&] { ran = true; });
    EXPECT_TRUE(queue.Cancel(id));
    EXPECT_FALSE(queue.Cancel(id));
  }
  EXPECT_FALSE(ran);
}

TEST(TimerQueue, ATaskThatIsDueFirstIsNotKeptByOneThatIsFar) {
  TimerQueue queue;
  queue.After(absl::Hours(1), [] {});
  // The thread waits for the far one, or is about to.
  for (int i = 0; i < 100; ++i) {
    Done done;
    queue.Post([&] { done.Notify(); });
    ASSERT_TRUE(done.Await()) << "task " << i;
  }
}

TEST(TimerQueue, RunsEachTaskThatWasNotCancelled) {
  constexpr int kThreads = 4;
  constexpr int kTasks = 500;
  std::atomic<int> ran{0};
  std::atomic<int> cancelled{0};
  Done done;
  TimerQueue queue;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int task = 0; task < kTasks; ++task) {
        const uint64_t id = queue.After(absl::Microseconds(task % 50), [&] { ++ran; });
        if (task % 2 == 0 && queue.Cancel(id)) ++cancelled;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  queue.After(absl::Milliseconds(1), [&] { done.Notify(); });
  ASSERT_TRUE(done.Await());
  EXPECT_EQ(ran + cancelled, kThreads * kTasks);
}

TEST(TimerQueue, MayBeDestroyedByItsOwnTask) {
  auto queue = std::make_unique<TimerQueue>();
  Done done;
  queue->Post([&] {
    EXPECT_TRUE(queue->OnThread());
    queue.reset();
    done.Notify();
  });
  ASSERT_TRUE(done.Await());
}

}  // namespace
}  // namespace cohort::client
