#include "client/rendezvous/timer_queue.h"

#include <memory>
#include <vector>

#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

TEST(TimerQueue, RunsInOrderOfTimeThenOfArrival) {
  TimerQueue queue;
  std::vector<int> order;
  absl::Notification done;
  queue.After(absl::Milliseconds(40), [&] {
    order.push_back(3);
    done.Notify();
  });
  queue.After(absl::Milliseconds(20), [&] { order.push_back(2); });
  queue.Post([&] { order.push_back(0); });
  queue.Post([&] { order.push_back(1); });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(10)));
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

TEST(TimerQueue, MayBeDestroyedByItsOwnTask) {
  auto queue = std::make_unique<TimerQueue>();
  absl::Notification done;
  queue->Post([&] {
    EXPECT_TRUE(queue->OnThread());
    queue.reset();
    done.Notify();
  });
  ASSERT_TRUE(done.WaitForNotificationWithTimeout(absl::Seconds(10)));
}

}  // namespace
}  // namespace cohort::client
