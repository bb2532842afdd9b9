// What waits, expires and watches.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/store.h"
#include "coordinator/core/testing/store_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

// Such as "+a=1" and "-a", "!a" for an expired one.
std::vector<std::string> Told(const WatchKeysReply& reply) {
  std::vector<std::string> told;
  for (const KeyEvent& event : reply.events) {
    const KeyValue& kv = event.key_value;
    told.push_back(event.expired   ? absl::StrCat("!", kv.key)
                   : event.deleted ? absl::StrCat("-", kv.key)
                                   : absl::StrCat("+", kv.key, "=", kv.value.bytes()));
  }
  return told;
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

TEST(Store, ExpiresAKeyExactlyAndTellsWatchers) {
  StoreTest store;
  const CallId watch = store.Begin(WatchKeysCall{"a"}, absl::Hours(1));
  store.Begin(Brief("a", absl::Seconds(5)));
  const auto put = store.Take<WatchKeysReply>(watch);
  EXPECT_EQ(put.events[0].key_value.expires_in, absl::Seconds(5));
  const CallId next = store.Begin(WatchKeysCall{"a", put.revision}, absl::Hours(1));
  store.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_EQ(store.Value("a"), "brief");
  store.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Told(store.Take<WatchKeysReply>(next)), ElementsAre("!a"));
  EXPECT_EQ(store.RowCount(RecordKind::kKey), 0u);
}

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

// --- watch

TEST(Store, TellsChangesInOrderEachOnce) {
  StoreTest store;
  int64_t from = store.Put("before", "0");
  store.Put("k/a", "1");
  store.Put("other", "1");
  store.Put("k/b", "2");
  store.Begin(DeleteCall{"k/a"});
  const auto first = store.Ask<WatchKeysReply>(WatchKeysCall{"k/", from});
  EXPECT_THAT(Told(first), ElementsAre("+k/a=1", "+k/b=2", "-k/a"));
  EXPECT_EQ(first.revision, store.store().revision());
  const CallId next = store.Begin(WatchKeysCall{"k/", first.revision}, kWait);
  store.Put("other", "2");
  EXPECT_FALSE(store.Answered(next));
  store.Put("k/c", "3");
  EXPECT_THAT(Told(store.Take<WatchKeysReply>(next)), ElementsAre("+k/c=3"));
}

TEST(Store, WatchesFromNowWhenNoRevisionIsGiven) {
  StoreTest store;
  store.Put("a", "1");
  const CallId id = store.Begin(WatchKeysCall{""}, kWait);
  EXPECT_FALSE(store.Answered(id));
  store.Put("b", "2");
  EXPECT_THAT(Told(store.Take<WatchKeysReply>(id)), ElementsAre("+b=2"));
}

TEST(Store, LosesNothingBetweenARangeAndAWatchFromItsRevision) {
  StoreTest store;
  const auto range = store.Ask<RangeReply>(RangeCall{});
  EXPECT_NE(range.revision, 0);
  store.Put("a", "1");
  EXPECT_THAT(Told(store.Ask<WatchKeysReply>(WatchKeysCall{"", range.revision})),
              ElementsAre("+a=1"));
}

TEST(Store, AnswersNoEventsAndTheRevisionWhenAWatchTimesOut) {
  StoreTest store;
  const CallId id = store.Begin(WatchKeysCall{"k/"}, kWait);
  const int64_t skipped = store.Put("other", "1");
  store.Advance(kWait);
  const auto reply = store.Take<WatchKeysReply>(id);
  EXPECT_THAT(reply.events, IsEmpty());
  EXPECT_EQ(reply.revision, skipped);
}

TEST(Store, TellsAWatchThatTimesOutWhatExpiredAtThatInstant) {
  StoreTest store;
  store.Begin(Brief("a", kWait));
  const CallId id = store.Begin(WatchKeysCall{""}, kWait);
  store.Sleep(kWait);
  store.Do([&](Step& step) { store.shard().waits.Run(step); });
  EXPECT_THAT(Told(store.Take<WatchKeysReply>(id)), ElementsAre("!a"));
}

TEST(Store, ContinuesAfterAFullBatch) {
  StoreTest store;
  int64_t from = store.store().revision();
  for (int i = 0; i < 600; ++i) store.Put(absl::StrCat("k", i), "v");
  std::vector<size_t> sizes;
  for (int batch = 0; batch < 3; ++batch) {
    const auto reply = store.Ask<WatchKeysReply>(WatchKeysCall{"k", from});
    sizes.push_back(reply.events.size());
    from = reply.revision;
  }
  EXPECT_THAT(sizes, ElementsAre(256, 256, 88));
}

TEST(Store, EndsABatchBeforeItsValuesExceedAnAnswer) {
  StoreTest store;
  store.limits().max_inline_bytes = 10;
  const int64_t from = store.store().revision();
  for (const char* key : {"a", "b", "c"}) store.Put(key, "12345");
  const auto first = store.Ask<WatchKeysReply>(WatchKeysCall{"", from});
  EXPECT_EQ(first.events.size(), 2u);
  EXPECT_EQ(store.Ask<WatchKeysReply>(WatchKeysCall{"", first.revision}).events.size(), 1u);
}

TEST(Store, RefusesAWatchOfWhatIsCompacted) {
  StoreTest store;
  store.limits().max_event_log = 2;
  std::vector<int64_t> revisions;
  for (int i = 0; i < 4; ++i) revisions.push_back(store.Put("a", absl::StrCat(i)));
  const absl::Status status = store.Try(WatchKeysCall{"", revisions[0]});
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat(revisions[1])));
  EXPECT_EQ(store.Ask<WatchKeysReply>(WatchKeysCall{"", revisions[1]}).events.size(), 2u);
  EXPECT_EQ(store.Try(WatchKeysCall{"", revisions[3] + 1}).code(), absl::StatusCode::kOutOfRange);
}

TEST(Store, KeepsAParkedWatchWhoseStartIsCompacted) {
  StoreTest store;
  store.limits().max_event_log = 2;
  const CallId id = store.Begin(WatchKeysCall{"k"}, kWait);
  for (int i = 0; i < 10; ++i) store.Put("other", "x");
  store.Put("k", "1");
  EXPECT_THAT(Told(store.Take<WatchKeysReply>(id)), ElementsAre("+k=1"));
}

TEST(Store, TellsAllKeysOfADeletedPrefixAtOnce) {
  StoreTest store;
  for (const char* key : {"k/a", "k/b", "l"}) store.Put(key, "v");
  const CallId id = store.Begin(WatchKeysCall{"k/"}, kWait);
  store.Begin(DeleteCall{"", true});
  EXPECT_THAT(Told(store.Take<WatchKeysReply>(id)), ElementsAre("-k/a", "-k/b"));
}

TEST(Store, TellsASessionsKeysAsExpired) {
  StoreTest store;
  PutCall put{"a", "1"};
  put.bind_to_session = true;
  store.In(kSession(1)).Begin(put);
  const CallId id = store.Begin(WatchKeysCall{""}, kWait);
  store.Do([&](Step& step) { store.store().EndSession(step, kSession(1)); });
  EXPECT_THAT(Told(store.Take<WatchKeysReply>(id)), ElementsAre("!a"));
}

TEST(Store, BoundsTheBytesOfItsHistory) {
  StoreTest store;
  for (int i = 0; i < 20; ++i) store.Put("a", std::string(1 << 20, 'x'));
  EXPECT_LE(store.ledger().held(), Store::kHistoryBytes + (1 << 20));
  store.Begin(DeleteCall{"a"});
  store.Advance(Store::kHistoryAge);
  EXPECT_EQ(store.ledger().held(), 0);
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
  EXPECT_EQ(explain(999), "");
  EXPECT_EQ(store.store().SessionOf(get), kSession(3));
}

TEST(Store, LeavesNoTimersAndWaitsBehind) {
  Shard shard;
  shard.ledger = std::make_shared<ByteLedger>();
  OperationWindow operations;
  int64_t last_number = 0;
  Effects effects;
  Step step(absl::UnixEpoch(), effects);
  {
    Store store(shard, GroupKey{"t", "g"}, operations, std::make_shared<ByteLedger>(shard.ledger),
                &last_number);
    store.Handle(step, 1, Caller{}, kWait, QueuePopCall{"q"});
    store.Handle(step, 2, Caller{}, kWait, Brief("a", absl::Seconds(5)));
  }
  EXPECT_EQ(shard.waits.size(), 0u);
  EXPECT_EQ(shard.timers.Next(), absl::InfiniteFuture());
  effects = Effects{};
  EXPECT_EQ(shard.ledger->held(), 0);
}

}  // namespace
}  // namespace cohort::coordinator
