// Pops that their callers have given up: no item is lost, none is handed out twice, and the order
// stays.
#include <string>

#include "coordinator/core/store/store.h"
#include "coordinator/core/testing/store_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using StoreTest = StoreHarness;
constexpr auto kOperation = &StoreHarness::Operation;
constexpr absl::Duration kWait = absl::Seconds(10);

std::string Pop(StoreTest& store, uint64_t operation) {
  const auto reply = store.With(kOperation(operation)).Ask<QueuePopReply>(QueuePopCall{"q"});
  return reply.found ? reply.value.bytes() : "none";
}

TEST(AbandonedPop, PutsItsItemBackAtItsOldPlace) {
  StoreTest store;
  store.Push("q", "1");
  store.Push("q", "2");
  store.Push("q", "3");
  EXPECT_EQ(Pop(store, 1), "1");
  EXPECT_EQ(Pop(store, 2), "2");
  store.Abandon({kOperation(2)});
  store.Abandon({kOperation(1)});
  EXPECT_EQ(store.store().unacknowledged_count(), 0);
  EXPECT_EQ(store.store().queue_item_count(), 3);
  EXPECT_EQ(Pop(store, 3), "1");
  EXPECT_EQ(Pop(store, 4), "2");
  EXPECT_EQ(Pop(store, 5), "3");
  EXPECT_EQ(Pop(store, 6), "none");
}

TEST(AbandonedPop, GivesItsItemToAConsumerThatWaits) {
  StoreTest store;
  store.Push("q", "1");
  EXPECT_EQ(Pop(store, 1), "1");
  const CallId waits = store.With(kOperation(2)).Begin(QueuePopCall{"q"}, kWait);
  EXPECT_FALSE(store.Answered(waits));
  store.Abandon({kOperation(1)});
  EXPECT_EQ(store.Take<QueuePopReply>(waits).value.bytes(), "1");
  EXPECT_EQ(store.store().unacknowledged_count(), 1);
}

TEST(AbandonedPop, SeveralAtOnceKeepTheirOrder) {
  StoreTest store;
  store.Push("q", "1");
  store.Push("q", "2");
  EXPECT_EQ(Pop(store, 1), "1");
  EXPECT_EQ(Pop(store, 2), "2");
  const CallId first = store.With(kOperation(3)).Begin(QueuePopCall{"q"}, kWait);
  const CallId second = store.With(kOperation(4)).Begin(QueuePopCall{"q"}, kWait);
  store.Abandon({kOperation(2), kOperation(1)});
  EXPECT_EQ(store.Take<QueuePopReply>(first).value.bytes(), "1");
  EXPECT_EQ(store.Take<QueuePopReply>(second).value.bytes(), "2");
}

TEST(AbandonedPop, WakesAGetThatWaitsForTheQueue) {
  StoreTest store;
  store.Push("q", "1");
  EXPECT_EQ(Pop(store, 1), "1");
  GetCall get;
  get.queues = {"q"};
  get.wait = true;
  const CallId waits = store.Begin(get, kWait);
  EXPECT_FALSE(store.Answered(waits));
  store.Abandon({kOperation(1)});
  EXPECT_TRUE(store.Answered(waits));
}

TEST(AbandonedPop, TakesNothingLater) {
  StoreTest store;
  const CallId waits = store.With(kOperation(1)).Begin(QueuePopCall{"q"}, kWait);
  store.Abandon({kOperation(1)});
  EXPECT_FALSE(store.Take<QueuePopReply>(waits).found);
  store.Abandon({kOperation(2)});  // has not come yet
  store.Push("q", "1");
  EXPECT_EQ(Pop(store, 1), "none");
  EXPECT_EQ(Pop(store, 2), "none");
  EXPECT_EQ(Pop(store, 3), "1");
}

TEST(AbandonedPop, ThatIsAcknowledgedStaysFreed) {
  StoreTest store;
  store.Push("q", "1");
  const auto popped = store.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"});
  store.Acknowledge(popped.receipt);
  store.Abandon({kOperation(1)});
  store.Abandon({kOperation(1)});
  EXPECT_EQ(Pop(store, 2), "none");
  EXPECT_EQ(store.store().queue_item_count(), 0);
}

TEST(AbandonedPop, CountsItsItemOnce) {
  StoreTest store;
  store.limits().max_queue_depth = 3;
  store.Push("q", "1");
  for (uint64_t operation = 1; operation <= 5; ++operation) {
    EXPECT_EQ(Pop(store, operation), "1");
    store.Abandon({kOperation(operation)});
  }
  EXPECT_TRUE(store.Try(QueuePushCall{"q", "2"}).ok());
  EXPECT_TRUE(store.Try(QueuePushCall{"q", "3"}).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(store.Try(QueuePushCall{"q", "4"})));
}

TEST(AbandonedPop, ItsItemSurvivesARestartAndExpiresInTime) {
  StoreTest before;
  QueuePushCall push{"q", "1"};
  push.expiration = absl::Seconds(5);
  before.Begin(push);
  before.Push("q", "2");
  EXPECT_EQ(Pop(before, 1), "1");
  before.Abandon({kOperation(1)});

  StoreTest after(2, before.rows());
  EXPECT_EQ(Pop(after, 2), "1");
  after.Abandon({kOperation(2)});
  after.Advance(absl::Seconds(5));
  EXPECT_EQ(after.store().queue_item_count(), 1);
  EXPECT_EQ(Pop(after, 3), "2");
}

TEST(AbandonedPop, AnItemThatExpiresMeanwhileDoesNotComeBack) {
  StoreTest store;
  QueuePushCall push{"q", "1"};
  push.expiration = absl::Seconds(5);
  store.Begin(push);
  EXPECT_EQ(Pop(store, 1), "1");
  store.Sleep(absl::Seconds(5));
  store.Abandon({kOperation(1)});
  EXPECT_EQ(store.store().queue_item_count(), 0);
  EXPECT_EQ(Pop(store, 2), "none");
}

}  // namespace
}  // namespace cohort::coordinator
