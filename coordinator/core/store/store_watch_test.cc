// Watches of keys: their events, their order, and the revision from which they begin.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/core/store/store.h"
#include "coordinator/core/testing/store_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using StoreTest = StoreHarness;
constexpr auto kSession = &StoreHarness::Session;
constexpr absl::Duration kWait = absl::Seconds(10);

PutCall Brief(const std::string& key, absl::Duration expiration) {
  PutCall put{key, "brief"};
  put.expiration = expiration;
  return put;
}

// Such as "+a=1" and "-a", "!a" for an expired one.
std::vector<std::string> Changes(const WatchKeysReply& reply) {
  std::vector<std::string> changes;
  for (const KeyEvent& event : reply.events) {
    const KeyValue& kv = event.key_value;
    changes.push_back(event.expired   ? absl::StrCat("!", kv.key)
                      : event.deleted ? absl::StrCat("-", kv.key)
                                      : absl::StrCat("+", kv.key, "=", kv.value.bytes()));
  }
  return changes;
}

TEST(Store, ExpiresAKeyExactlyAndNotifiesWatchers) {
  StoreTest store;
  const CallId watch = store.Begin(WatchKeysCall{"a"}, absl::Hours(1));
  store.Begin(Brief("a", absl::Seconds(5)));
  const auto put = store.Take<WatchKeysReply>(watch);
  EXPECT_EQ(put.events[0].key_value.expires_in, absl::Seconds(5));
  const CallId next = store.Begin(WatchKeysCall{"a", put.revision}, absl::Hours(1));
  store.Advance(absl::Seconds(5) - absl::Nanoseconds(1));
  EXPECT_EQ(store.Value("a"), "brief");
  store.Advance(absl::Nanoseconds(1));
  EXPECT_THAT(Changes(store.Take<WatchKeysReply>(next)), ElementsAre("!a"));
  EXPECT_EQ(store.RowCount(RecordKind::kKey), 0u);
}

TEST(Store, DeliversEachChangeOnceAndInOrder) {
  StoreTest store;
  int64_t from = store.Put("before", "0");
  store.Put("k/a", "1");
  store.Put("other", "1");
  store.Put("k/b", "2");
  store.Begin(DeleteCall{"k/a"});
  const auto first = store.Ask<WatchKeysReply>(WatchKeysCall{"k/", from});
  EXPECT_THAT(Changes(first), ElementsAre("+k/a=1", "+k/b=2", "-k/a"));
  EXPECT_EQ(first.revision, store.store().revision());
  const CallId next = store.Begin(WatchKeysCall{"k/", first.revision}, kWait);
  store.Put("other", "2");
  EXPECT_FALSE(store.Answered(next));
  store.Put("k/c", "3");
  EXPECT_THAT(Changes(store.Take<WatchKeysReply>(next)), ElementsAre("+k/c=3"));
}

TEST(Store, WatchesFromNowWhenNoRevisionIsGiven) {
  StoreTest store;
  store.Put("a", "1");
  const CallId id = store.Begin(WatchKeysCall{""}, kWait);
  EXPECT_FALSE(store.Answered(id));
  store.Put("b", "2");
  EXPECT_THAT(Changes(store.Take<WatchKeysReply>(id)), ElementsAre("+b=2"));
}

TEST(Store, LosesNothingBetweenARangeAndAWatchFromItsRevision) {
  StoreTest store;
  const auto range = store.Ask<RangeReply>(RangeCall{});
  EXPECT_NE(range.revision, 0);
  store.Put("a", "1");
  EXPECT_THAT(Changes(store.Ask<WatchKeysReply>(WatchKeysCall{"", range.revision})),
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

TEST(Store, AWatchThatTimesOutGetsTheExpirationsOfThatInstant) {
  StoreTest store;
  store.Begin(Brief("a", kWait));
  const CallId id = store.Begin(WatchKeysCall{""}, kWait);
  store.Sleep(kWait);
  store.Do([&](Step& step) { store.shard().waits.Run(step); });
  EXPECT_THAT(Changes(store.Take<WatchKeysReply>(id)), ElementsAre("!a"));
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
  EXPECT_THAT(Changes(store.Take<WatchKeysReply>(id)), ElementsAre("+k=1"));
}

TEST(Store, DeliversAllDeletionsOfAPrefixTogether) {
  StoreTest store;
  for (const char* key : {"k/a", "k/b", "l"}) store.Put(key, "v");
  const CallId id = store.Begin(WatchKeysCall{"k/"}, kWait);
  store.Begin(DeleteCall{"", true});
  EXPECT_THAT(Changes(store.Take<WatchKeysReply>(id)), ElementsAre("-k/a", "-k/b"));
}

TEST(Store, ReportsTheKeysOfAnEndedSessionAsExpired) {
  StoreTest store;
  PutCall put{"a", "1"};
  put.bind_to_session = true;
  store.In(kSession(1)).Begin(put);
  const CallId id = store.Begin(WatchKeysCall{""}, kWait);
  store.Do([&](Step& step) { store.store().EndSession(step, kSession(1)); });
  EXPECT_THAT(Changes(store.Take<WatchKeysReply>(id)), ElementsAre("!a"));
}

TEST(Store, BoundsTheBytesOfItsHistory) {
  StoreTest store;
  for (int i = 0; i < 20; ++i) store.Put("a", std::string(1 << 20, 'x'));
  EXPECT_LE(store.ledger().held(), Store::kHistoryBytes + (1 << 20));
  store.Begin(DeleteCall{"a"});
  store.Advance(Store::kHistoryAge);
  EXPECT_EQ(store.ledger().held(), 0);
}

TEST(Store, KeepsNewEventsAfterMoreBytesThanItsHistoryHas) {
  StoreTest store;
  for (int i = 0; i < 20; ++i) store.Put("a", std::string(1 << 20, 'x'));
  const int64_t from = store.store().revision();
  for (const char* key : {"b", "c", "d"}) store.Put(key, "1");
  EXPECT_THAT(Changes(store.Ask<WatchKeysReply>(WatchKeysCall{"", from})),
              ElementsAre("+b=1", "+c=1", "+d=1"));
}

}  // namespace
}  // namespace cohort::coordinator
