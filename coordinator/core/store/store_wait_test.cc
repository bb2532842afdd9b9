// Waits and expiry of keys and queues. Watches: store_watch_test.cc.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/core/store/store.h"
#include "coordinator/core/testing/store_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;

using StoreTest = StoreHarness;
constexpr auto kOperation = &StoreHarness::Operation;
constexpr auto kSession = &StoreHarness::Session;
constexpr absl::Duration kWait = absl::Seconds(10);

GetCall WaitFor(std::vector<std::string> keys, int64_t newer_than = 0) {
  return GetCall{std::move(keys), true, newer_than};
}

PutCall Brief(const std::string& key, absl::Duration expiration) {
  PutCall put{key, "brief"};
  put.expiration = expiration;
  return put;
}

// --- get

TEST(Store, AnswersAGetWhenAllKeysExist) {
  for (const auto& order :
       {std::vector<std::string>{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c", "a"}}) {
    StoreTest store;
    const CallId id = store.Begin(WaitFor({"a", "b", "c"}), kWait);
    for (const std::string& key : order) {
      EXPECT_FALSE(store.Answered(id));
      store.Put(key, key);
    }
    ASSERT_TRUE(store.Answered(id));
    EXPECT_EQ(store.Take<GetReply>(id).values.size(), 3u);
    EXPECT_EQ(store.shard().waits.size(), 0u);
    EXPECT_EQ(store.store().waiter_count(), 0);
  }
}

TEST(Store, WaitsAgainForAKeyThatWentWhileAGetWaited) {
  StoreTest store;
  const CallId id = store.Begin(WaitFor({"a", "b"}), kWait);
  store.Put("a", "1");
  store.Begin(DeleteCall{"a"});
  store.Put("b", "1");
  EXPECT_FALSE(store.Answered(id));
  store.Put("a", "2");
  EXPECT_EQ(store.Take<GetReply>(id).values.size(), 2u);
}

TEST(Store, AnswersAGetOfNewerValuesOnlyWhenAllAreNewer) {
  StoreTest store;
  store.Put("a", "1");
  const int64_t seen = store.Put("b", "1");
  const CallId id = store.Begin(WaitFor({"a", "b"}, seen), kWait);
  store.Put("b", "2");
  EXPECT_FALSE(store.Answered(id));
  store.Begin(AddCall{"a", 1});
  EXPECT_EQ(store.Take<GetReply>(id).values.size(), 2u);
}

TEST(Store, AnswersWhatThereIsWhenAGetTimesOut) {
  StoreTest store;
  store.Put("b", "1");
  const CallId id = store.Begin(WaitFor({"a", "b"}), kWait);
  store.Advance(kWait - absl::Nanoseconds(1));
  EXPECT_FALSE(store.Answered(id));
  store.Advance(absl::Nanoseconds(1));
  const auto reply = store.Take<GetReply>(id);
  EXPECT_EQ(reply.values.size(), 1u);
  EXPECT_THAT(reply.missing_keys, ElementsAre("a"));
}

TEST(Store, AnswersAtOnceWithoutAWait) {
  StoreTest store;
  EXPECT_TRUE(store.Answered(store.Begin(WaitFor({"a"}))));
  EXPECT_TRUE(store.Answered(store.Begin(GetCall{{"a"}}, kWait)));
  EXPECT_TRUE(store.Answered(store.Begin(QueuePopCall{"q"})));
  EXPECT_TRUE(store.Answered(store.Begin(WatchKeysCall{})));
  EXPECT_EQ(store.store().waiter_count(), 0);
}

// --- queues

TEST(Store, ServesConsumersInTheOrderTheyCame) {
  StoreTest store;
  const CallId first = store.Begin(QueuePopCall{"q"}, kWait);
  const CallId second = store.Begin(QueuePopCall{"q"}, kWait);
  EXPECT_EQ(store.Ask<QueuePushReply>(QueuePushCall{"q", "1"}).depth, 0);
  EXPECT_FALSE(store.Answered(second));
  store.Push("q", "2");
  EXPECT_EQ(store.Take<QueuePopReply>(first).value.bytes(), "1");
  EXPECT_EQ(store.Take<QueuePopReply>(second).value.bytes(), "2");
  EXPECT_EQ(store.ledger().held(), 0);
}

TEST(Store, PassesOverACancelledConsumer) {
  StoreTest store;
  const CallId gone = store.With(kOperation(1)).Begin(QueuePopCall{"q"}, kWait);
  const CallId next = store.With(kOperation(2)).Begin(QueuePopCall{"q"}, kWait);
  store.Cancel(gone);
  store.Push("q", "1");
  EXPECT_FALSE(store.Answered(gone));
  EXPECT_EQ(store.Take<QueuePopReply>(next).value.bytes(), "1");
}

TEST(Store, GivesOneItemToAConsumerAndItsRepeat) {
  StoreTest store;
  const CallId first = store.With(kOperation(1)).Begin(QueuePopCall{"q"}, kWait);
  const CallId repeat = store.With(kOperation(1)).Begin(QueuePopCall{"q"}, kWait);
  const CallId other = store.With(kOperation(2)).Begin(QueuePopCall{"q"}, kWait);
  store.Push("q", "1");
  EXPECT_EQ(store.Take<QueuePopReply>(first).value.bytes(), "1");
  EXPECT_EQ(store.Take<QueuePopReply>(repeat).value.bytes(), "1");
  EXPECT_FALSE(store.Answered(other));
  EXPECT_EQ(store.store().unacknowledged_count(), 1);
}

TEST(Store, AnswersNotFoundWhenAPopTimesOut) {
  StoreTest store;
  const CallId id = store.Begin(QueuePopCall{"q"}, kWait);
  store.Advance(kWait);
  EXPECT_TRUE(store.Answered(id));
  EXPECT_FALSE(store.Take<QueuePopReply>(id).found);
  EXPECT_TRUE(store.store().idle());
}

// --- expiry

TEST(Store, DoesNotShowWhatIsDueWhenTheTimersAreLate) {
  StoreTest store;
  store.Begin(Brief("a", absl::Seconds(5)));
  QueuePushCall push{"q", "1"};
  push.expiration = absl::Seconds(5);
  store.Begin(push);
  store.Sleep(absl::Seconds(5));
  EXPECT_EQ(store.Value("a"), "(none)");
  EXPECT_FALSE(store.Ask<QueuePopReply>(QueuePopCall{"q"}).found);
}

TEST(Store, KeepsAKeyThatWasPutAgainWithoutExpiration) {
  StoreTest store;
  store.Begin(Brief("a", absl::Seconds(5)));
  store.Put("a", "for ever");
  store.Advance(absl::Hours(1));
  EXPECT_EQ(store.Value("a"), "for ever");
}

TEST(Store, KeepsTheExpirationOfACounterThatIsAddedTo) {
  StoreTest store;
  PutCall put{"n", "1"};
  put.expiration = absl::Seconds(5);
  store.Begin(put);
  store.Advance(absl::Seconds(3));
  store.Begin(AddCall{"n", 1});
  EXPECT_EQ(store.Ask<GetReply>(GetCall{{"n"}}).values[0].expires_in, absl::Seconds(2));
  store.Advance(absl::Seconds(2));
  EXPECT_EQ(store.Value("n"), "(none)");
}

TEST(Store, ExpiresQueueItemsWaitingAndHandedOut) {
  StoreTest store;
  store.store().set_data_expiration(absl::Seconds(5));
  store.Push("q", "1");
  store.Push("q", "2");
  store.With(kOperation(1)).Begin(QueuePopCall{"q"});
  EXPECT_EQ(store.store().queue_item_count(), 2);
  EXPECT_EQ(store.shard().timers.Next(), store.now() + absl::Seconds(5));
  store.Advance(absl::Seconds(5));
  EXPECT_EQ(store.store().queue_item_count(), 0);
  EXPECT_EQ(store.store().unacknowledged_count(), 0);
  EXPECT_EQ(store.RowCount(RecordKind::kQueueItem), 0u);
  EXPECT_TRUE(store.store().idle());
}

// --- ends of waits

TEST(Store, FailsAllParkedCalls) {
  StoreTest store;
  const std::vector<CallId> ids = {store.Begin(WaitFor({"a", "b"}), kWait),
                                   store.With(kOperation(1)).Begin(QueuePopCall{"q"}, kWait),
                                   store.Begin(WatchKeysCall{"k"}, kWait)};
  store.Do([&](Step& step) { store.store().FailAll(step, absl::AbortedError("closed")); });
  for (const CallId id : ids) EXPECT_EQ(store.StatusOf(id).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(store.shard().waits.size(), 0u);
  EXPECT_TRUE(store.store().idle());
}

TEST(Store, FailsTheParkedCallsOfOneSession) {
  StoreTest store;
  const CallId lost = store.In(kSession(1)).Begin(QueuePopCall{"q"}, kWait);
  const CallId other = store.In(kSession(2)).Begin(QueuePopCall{"q"}, kWait);
  store.Do([&](Step& step) {
    store.store().FailSession(step, kSession(1), absl::AbortedError("lost"));
  });
  EXPECT_EQ(store.StatusOf(lost).code(), absl::StatusCode::kAborted);
  store.Push("q", "1");
  EXPECT_TRUE(store.Take<QueuePopReply>(other).found);
}

TEST(Store, ForgetsCancelledCallsOfEveryKind) {
  StoreTest store;
  for (const CallId id : {store.Begin(WaitFor({"a"}), kWait), store.Begin(QueuePopCall{"q"}, kWait),
                          store.Begin(WatchKeysCall{"k"}, kWait)}) {
    store.Cancel(id);
    EXPECT_FALSE(store.Answered(id));
  }
  store.Put("a", "1");
  store.Put("k", "1");
  EXPECT_EQ(store.store().waiter_count(), 0);
}

TEST(Store, ExplainsWhatACallWaitsFor) {
  StoreTest store;
  const CallId get = store.In(kSession(3)).Begin(WaitFor({"a", "b"}), kWait);
  const CallId pop = store.Begin(QueuePopCall{"q"}, kWait);
  const CallId watch = store.Begin(WatchKeysCall{"k/"}, kWait);
  const auto explain = [&](CallId id) {
    ParkedCall parked;
    store.store().Explain(id, parked);
    return parked.operation;
  };
  EXPECT_EQ(explain(get), "get a (one of 2 keys)");
  EXPECT_EQ(explain(pop), "queue_pop q");
  EXPECT_EQ(explain(watch), "watch k/");
  // Keys may have any bytes.
  EXPECT_EQ(explain(store.Begin(WaitFor({"a\n\xe2\x80\xae"}), kWait)), "get a\\x0a\\xe2\\x80\\xae");
  EXPECT_EQ(explain(store.Begin(WatchKeysCall{"\x1b[2J"}, kWait)), "watch \\x1b[2J");
  EXPECT_EQ(explain(999), "");
  EXPECT_EQ(store.store().SessionOf(get), kSession(3));
}

TEST(Store, LeavesNoTimersAndWaitsBehind) {
  const auto account = std::make_shared<MemoryAccount>();
  Shard shard(std::make_shared<TenantAccounts>(account));
  FirstAnswers operations;
  int64_t last_number = 0;
  Effects effects;
  Step step(absl::UnixEpoch(), effects);
  {
    const std::shared_ptr<Tally> tally = shard.tallies.Of("t");
    Store store(shard, GroupKey{"t", "g"}, tally, operations,
                std::make_shared<ByteLedger>(tally->account()), &last_number);
    store.Handle(step, 1, Caller{}, kWait, QueuePopCall{"q"});
    store.Handle(step, 2, Caller{}, kWait, Brief("a", absl::Seconds(5)));
  }
  EXPECT_EQ(shard.waits.size(), 0u);
  EXPECT_EQ(shard.timers.Next(), absl::InfiniteFuture());
  effects = Effects{};
  shard.tallies.Publish();
  EXPECT_EQ(account->value_bytes(), 0);
  EXPECT_EQ(account->held(), 0);
}

}  // namespace
}  // namespace cohort::coordinator
