// Puts with conditions, and puts of several keys in one step.
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

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using StoreTest = StoreHarness;
constexpr auto kOperation = &StoreHarness::Operation;
constexpr auto kSession = &StoreHarness::Session;
constexpr absl::Duration kWait = absl::Seconds(10);

PutCall CompareAndSet(const std::string& key, const std::string& expected,
                      const std::string& desired) {
  PutCall put{key, desired};
  put.expected_value = expected;
  return put;
}

// The first pair is the call's own key, the others are its `more`.
PutCall PutAll(const std::vector<std::pair<std::string, std::string>>& values) {
  PutCall put{values[0].first, values[0].second};
  for (size_t i = 1; i < values.size(); ++i) {
    put.more.push_back(PutEntry{values[i].first, values[i].second});
  }
  return put;
}

// --- compare and set

TEST(StorePut, WritesOnlyOverTheExpectedValue) {
  struct Case {
    const char* what;
    const char* before;  // null: absent
    const char* expected;
    bool written;
  };
  const Case kCases[] = {
      {"the value is there", "old", "old", true},
      {"another value is there", "old", "other", false},
      {"a longer value is there", "old", "ol", false},
      {"a value is there, expected empty", "old", "", false},
      {"an empty value is there, expected empty", "", "", true},
      {"absent, expected empty", nullptr, "", true},
      {"absent, expected a value", nullptr, "old", false},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    StoreTest store;
    if (c.before != nullptr) store.Put("a", c.before);
    const auto reply = store.Ask<PutReply>(CompareAndSet("a", c.expected, "new"));
    EXPECT_EQ(reply.written, c.written);
    EXPECT_EQ(store.Value("a"), c.written ? "new" : c.before == nullptr ? "(none)" : c.before);
    ASSERT_EQ(reply.current.has_value(), !c.written && c.before != nullptr);
    if (reply.current.has_value()) {
      EXPECT_EQ(reply.current->value.bytes(), c.before);
    }
  }
}

TEST(StorePut, DistinguishesAnAbsentKeyFromAnEmptyValueByTheRevision) {
  StoreTest store;
  store.Put("empty", "");
  for (const char* key : {"empty", "absent"}) {
    PutCall put = CompareAndSet(key, "", "new");
    put.expected_revision = 0;
    EXPECT_EQ(store.Ask<PutReply>(put).written, std::string(key) == "absent") << key;
  }
}

TEST(StorePut, ARepeatOfARefusedCompareIsRefusedThoughItWouldHoldNow) {
  StoreTest store;
  store.Put("a", "1");
  const PutCall put = CompareAndSet("a", "2", "3");
  EXPECT_FALSE(store.With(kOperation(1)).Ask<PutReply>(put).written);
  store.Put("a", "2");
  const auto repeat = store.With(kOperation(1)).Ask<PutReply>(put);
  EXPECT_FALSE(repeat.written);
  EXPECT_EQ(repeat.current->value.bytes(), "2");
}

// --- several keys

TEST(StorePut, WritesAllKeysWithConsecutiveRevisions) {
  StoreTest store;
  const auto reply = store.Ask<PutReply>(PutAll({{"c", "3"}, {"a", "1"}, {"b", "2"}}));
  EXPECT_TRUE(reply.written);
  const auto read = store.Ask<GetReply>(GetCall{{"c", "a", "b"}});
  ASSERT_EQ(read.values.size(), 3u);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.values[i].revision, reply.revision - 2 + i) << read.values[i].key;
  }
  EXPECT_EQ(read.values[0].value.bytes(), "3");
  EXPECT_EQ(read.values[2].value.bytes(), "2");
  EXPECT_EQ(store.RowCount(RecordKind::kKey), 3u);
}

TEST(StorePut, WritesNoKeyIfOneConditionDoesNotHold) {
  StoreTest store;
  store.Put("b", "there");
  PutCall put = PutAll({{"a", "1"}, {"b", "2"}, {"c", "3"}});
  put.more[0].expected_revision = 0;
  const auto by_revision = store.Ask<PutReply>(put);
  EXPECT_FALSE(by_revision.written);
  ASSERT_TRUE(by_revision.current.has_value());
  EXPECT_EQ(by_revision.current->key, "b");
  EXPECT_EQ(store.Value("a"), "(none)");
  EXPECT_EQ(store.Value("c"), "(none)");

  put.more[0].expected_revision.reset();
  put.more[1].expected_value = "some";
  const auto by_value = store.Ask<PutReply>(put);
  EXPECT_FALSE(by_value.written);
  EXPECT_FALSE(by_value.current.has_value());  // "c" is absent
  put.more[1].expected_value = "";
  EXPECT_TRUE(store.Ask<PutReply>(put).written);
  EXPECT_EQ(store.Value("b"), "2");
}

TEST(StorePut, APutOfSeveralKeysEndsTheWaitsForEach) {
  StoreTest store;
  std::vector<CallId> waiting;
  for (const std::string key : {"a", "b", "c"}) {
    waiting.push_back(store.Begin(GetCall{{key}, true}, kWait));
  }
  store.Begin(PutAll({{"a", "1"}, {"b", "2"}, {"c", "3"}}));
  for (const CallId get : waiting) EXPECT_EQ(store.Take<GetReply>(get).values.size(), 1u);
}

TEST(StorePut, AWaitingGetSeesAllKeysOfAPut) {
  StoreTest store;
  store.Put("b", "old");
  const CallId waiting = store.Begin(GetCall{{"a", "b"}, true}, kWait);
  store.Begin(PutAll({{"a", "new"}, {"b", "new"}}));
  const auto reply = store.Take<GetReply>(waiting);
  ASSERT_EQ(reply.values.size(), 2u);
  EXPECT_EQ(reply.values[1].value.bytes(), "new");
  EXPECT_EQ(reply.revision, store.store().revision());
}

TEST(StorePut, ExpirationAndSessionHoldForAllKeys) {
  StoreTest store;
  PutCall brief = PutAll({{"a", "1"}, {"b", "2"}});
  brief.expiration = absl::Seconds(1);
  store.Begin(brief);
  PutCall bound = PutAll({{"c", "3"}, {"d", "4"}});
  bound.bind_to_session = true;
  store.In(kSession(1)).Begin(bound);
  EXPECT_EQ(store.store().key_count(), 4);
  store.Advance(absl::Seconds(1));
  EXPECT_EQ(store.store().key_count(), 2);
  store.Do([&](Step& step) { store.store().EndSession(step, kSession(1)); });
  EXPECT_EQ(store.store().key_count(), 0);
}

TEST(StorePut, ActsOnceForAnOperationIdAlsoAfterARestart) {
  StoreTest store;
  const PutCall put = PutAll({{"a", "1"}, {"b", "2"}});
  const auto first = store.With(kOperation(1)).Ask<PutReply>(put);
  store.Put("b", "later");
  StoreTest again(2, store.rows());
  const auto repeat = again.With(kOperation(1)).Ask<PutReply>(put);
  EXPECT_TRUE(repeat.written);
  EXPECT_EQ(repeat.revision, first.revision);
  EXPECT_EQ(again.Value("b"), "later");
}

TEST(StorePut, AnOperationIdWithOtherKeysOrConditionsIsRefused) {
  const auto other = [](auto change) {
    PutCall put = PutAll({{"a", "1"}, {"b", "2"}});
    change(put);
    return put;
  };
  for (const PutCall& changed : {
           other([](PutCall& put) { put.more.clear(); }),
           other([](PutCall& put) { put.more[0].key = "c"; }),
           other([](PutCall& put) { put.more[0].value = "3"; }),
           other([](PutCall& put) { put.more[0].expected_revision = 0; }),
           other([](PutCall& put) { put.more[0].expected_value = ""; }),
           other([](PutCall& put) { put.expected_value = ""; }),
       }) {
    StoreTest store;
    store.With(kOperation(1)).Begin(PutAll({{"a", "1"}, {"b", "2"}}));
    const absl::Status status = store.With(kOperation(1)).Try(changed);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("put of key"));
  }
}

TEST(StorePut, LimitsCountAllKeysTogetherAndAnErrorWritesNoKey) {
  const std::string value(400, 'v');
  struct Case {
    const char* limit;
    void (*set)(Limits&);
  };
  const Case kCases[] = {
      {"max_keys", [](Limits& limits) { limits.max_keys = 2; }},
      {"max_value_bytes", [](Limits& limits) { limits.max_value_bytes = 399; }},
      {"max_group_bytes_held", [](Limits& limits) { limits.max_group_bytes_held = 1000; }},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.limit);
    StoreTest store;
    c.set(store.limits());
    const absl::Status status = store.Try(PutAll({{"a", "1"}, {"b", value}, {"c", value + value}}));
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()), HasSubstr(c.limit));
    EXPECT_EQ(store.store().key_count(), 0);
    EXPECT_EQ(store.ledger().held(), 0);
    EXPECT_TRUE(store.Try(PutAll({{"a", "1"}, {"b", "2"}})).ok());
  }
}

TEST(StorePut, AWatchShowsEachKeyOnce) {
  StoreTest store;
  const CallId watch = store.Begin(WatchKeysCall{"k/"}, kWait);
  store.Begin(PutAll({{"k/1", "1"}, {"other", "2"}, {"k/2", "3"}}));
  const auto reply = store.Take<WatchKeysReply>(watch);
  std::vector<std::string> keys;
  for (const KeyEvent& event : reply.events) keys.push_back(event.key_value.key);
  EXPECT_THAT(keys, ElementsAre("k/1", "k/2"));
  EXPECT_EQ(reply.revision, store.store().revision());
}

}  // namespace
}  // namespace cohort::coordinator
