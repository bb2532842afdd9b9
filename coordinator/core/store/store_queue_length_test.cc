// The lengths of queues, and gets that wait until queues have a value.
#include <string>
#include <utility>
#include <vector>

#include "coordinator/core/store/store.h"
#include "coordinator/core/testing/store_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using StoreTest = StoreHarness;
constexpr auto kOperation = &StoreHarness::Operation;
constexpr absl::Duration kWait = absl::Seconds(10);

GetCall LengthsOf(std::vector<std::string> queues) {
  GetCall get;
  get.queues = std::move(queues);
  return get;
}
GetCall WaitForQueues(std::vector<std::string> queues) {
  GetCall get = LengthsOf(std::move(queues));
  get.wait = true;
  return get;
}
// As PyTorch's wait: each name may be a key or a queue.
GetCall WaitForEither(std::vector<std::string> names) {
  GetCall get{std::move(names), true};
  get.or_queue = true;
  return get;
}

std::vector<std::pair<std::string, int64_t>> Lengths(const GetReply& reply) {
  std::vector<std::pair<std::string, int64_t>> lengths;
  for (const QueueLength& length : reply.queue_lengths) {
    lengths.emplace_back(length.queue, length.length);
  }
  return lengths;
}
int64_t LengthOf(StoreTest& store, const std::string& queue) {
  return Lengths(store.Ask<GetReply>(LengthsOf({queue})))[0].second;
}

TEST(StoreQueueLength, CountsWhatNoConsumerHasTaken) {
  StoreTest store;
  EXPECT_EQ(LengthOf(store, "q"), 0);
  store.Push("q", "1");
  store.Push("q", "2");
  EXPECT_EQ(LengthOf(store, "q"), 2);
  const auto popped = store.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"});
  EXPECT_EQ(LengthOf(store, "q"), 1);
  store.Acknowledge(popped.receipt);
  EXPECT_EQ(LengthOf(store, "q"), 1);
  QueuePushCall brief{"q", "3"};
  brief.expiration = absl::Seconds(1);
  store.Begin(brief);
  EXPECT_EQ(LengthOf(store, "q"), 2);
  store.Sleep(absl::Seconds(1));  // the timer has not run: expiry is exact for all that
  EXPECT_EQ(LengthOf(store, "q"), 1);
}

TEST(StoreQueueLength, AnswersInTheOrderAskedBesideKeys) {
  StoreTest store;
  store.Push("b", "1");
  store.Put("k", "v");
  GetCall get = LengthsOf({"b", "a", "b"});
  get.keys = {"k", "b"};
  const auto reply = store.Ask<GetReply>(get);
  EXPECT_THAT(Lengths(reply), ElementsAre(std::make_pair("b", 1), std::make_pair("a", 0),
                                          std::make_pair("b", 1)));
  EXPECT_EQ(reply.values.size(), 1u);
  EXPECT_THAT(reply.missing_keys, ElementsAre("b"));  // queues and keys have names of their own
}

TEST(StoreQueueLength, AGetWaitsUntilAllQueuesHaveAValue) {
  StoreTest store;
  const CallId id = store.Begin(WaitForQueues({"a", "b"}), kWait);
  store.Push("b", "1");
  EXPECT_FALSE(store.Answered(id));
  store.Put("a", "a key is no queue");
  EXPECT_FALSE(store.Answered(id));
  store.Push("a", "1");
  ASSERT_TRUE(store.Answered(id));
  EXPECT_THAT(Lengths(store.Take<GetReply>(id)),
              ElementsAre(std::make_pair("a", 1), std::make_pair("b", 1)));
  EXPECT_EQ(LengthOf(store, "a"), 1);  // nothing was taken
  EXPECT_EQ(store.store().waiter_count(), 0);
}

TEST(StoreQueueLength, AGetWaitsAgainForAQueueThatWasEmptied) {
  StoreTest store;
  const CallId id = store.Begin(WaitForQueues({"a", "b"}), kWait);
  store.Push("a", "1");
  store.Begin(QueuePopCall{"a"});
  store.Push("b", "1");
  EXPECT_FALSE(store.Answered(id));
  store.Push("a", "2");
  EXPECT_TRUE(store.Answered(id));
}

TEST(StoreQueueLength, AWaitingConsumerComesBeforeAWaitingGet) {
  StoreTest store;
  const CallId get = store.Begin(WaitForQueues({"q"}), kWait);
  const CallId pop = store.Begin(QueuePopCall{"q"}, kWait);
  store.Push("q", "1");
  EXPECT_TRUE(store.Take<QueuePopReply>(pop).found);
  EXPECT_FALSE(store.Answered(get));
  store.Push("q", "2");
  EXPECT_TRUE(store.Answered(get));
}

TEST(StoreQueueLength, ALengthOfZeroSaysWhichQueueAWaitEndedWithout) {
  StoreTest store;
  store.Push("a", "1");
  const CallId id = store.Begin(WaitForQueues({"a", "b"}), kWait);
  store.Advance(kWait - absl::Nanoseconds(1));
  EXPECT_FALSE(store.Answered(id));
  store.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Lengths(store.Take<GetReply>(id)),
              ElementsAre(std::make_pair("a", 1), std::make_pair("b", 0)));
}

TEST(StoreQueueLength, EitherAKeyOrAQueueOfTheNameEndsAWait) {
  for (bool as_key : {false, true}) {
    SCOPED_TRACE(as_key ? "key" : "queue");
    StoreTest store;
    store.Push("first", "1");
    const CallId id = store.Begin(WaitForEither({"first", "second"}), kWait);
    EXPECT_FALSE(store.Answered(id));
    if (as_key) {
      store.Put("second", "v");
    } else {
      store.Push("second", "v");
    }
    ASSERT_TRUE(store.Answered(id));
    const auto reply = store.Take<GetReply>(id);
    EXPECT_EQ(reply.values.size(), as_key ? 1u : 0u);
    EXPECT_EQ(reply.queue_lengths.size(), as_key ? 1u : 2u);
    EXPECT_THAT(reply.missing_keys, IsEmpty());
    EXPECT_EQ(store.store().waiter_count(), 0);
  }
}

TEST(StoreQueueLength, AWaitForKeysOrQueuesNamesTheMissingNames) {
  StoreTest store;
  store.Put("key", "v");
  store.Push("queue", "v");
  const CallId id = store.Begin(WaitForEither({"key", "neither", "queue"}), kWait);
  store.Advance(kWait);
  const auto reply = store.Take<GetReply>(id);
  EXPECT_THAT(reply.missing_keys, ElementsAre("neither"));
  EXPECT_EQ(reply.values.size(), 1u);
  EXPECT_THAT(Lengths(reply), ElementsAre(std::make_pair("queue", 1)));
}

TEST(StoreQueueLength, AWaitForEitherCountsWhatHasBeenThere) {
  StoreTest store;
  const CallId id = store.Begin(WaitForEither({"a", "b", "c"}), kWait);
  store.Put("a", "1");
  store.Begin(DeleteCall{"a"});
  store.Put("c", "1");
  EXPECT_FALSE(store.Answered(id));
  store.Put("b", "1");
  EXPECT_TRUE(store.Answered(id));
  EXPECT_EQ(store.store().waiter_count(), 0);
}

TEST(StoreQueueLength, ACancelledGetLeavesNothingBehind) {
  StoreTest store;
  const int64_t held = store.tally().held();
  const CallId queues = store.Begin(WaitForQueues({"a", "b"}), kWait);
  const CallId either = store.Begin(WaitForEither({"a"}), kWait);
  ParkedCall parked;
  store.store().Explain(queues, parked);
  EXPECT_EQ(parked.operation, "get queue a (one of 2 keys and queues)");
  store.Cancel(queues);
  store.Cancel(either);
  EXPECT_EQ(store.tally().held(), held);
  store.Push("a", "1");
  store.Put("a", "1");
  EXPECT_FALSE(store.Answered(queues));
  EXPECT_FALSE(store.Answered(either));
}

}  // namespace
}  // namespace cohort::coordinator
