// Keys, counters and queues, call by call; store_wait_test.cc has waits, expiries and watches,
// store_limits_test.cc repeats, limits and restarts.
#include "coordinator/core/store/store.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
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

std::vector<std::string> KeysOf(const std::vector<KeyValue>& values) {
  std::vector<std::string> keys;
  for (const KeyValue& value : values) keys.push_back(value.key);
  return keys;
}

// --- put, get

TEST(Store, ReadsWhatWasPut) {
  StoreTest store;
  const int64_t revision = store.Put("a", "1");
  const auto reply = store.Ask<GetReply>(GetCall{{"a"}});
  ASSERT_EQ(reply.values.size(), 1u);
  EXPECT_EQ(reply.values[0].value.bytes(), "1");
  EXPECT_EQ(reply.values[0].revision, revision);
  EXPECT_EQ(reply.values[0].created_revision, revision);
  EXPECT_FALSE(reply.values[0].expires_in.has_value());
  EXPECT_EQ(reply.revision, revision);
}

TEST(Store, KeepsCreatedRevisionOverAPutAndBeginsAnewAfterADelete) {
  StoreTest store;
  const int64_t created = store.Put("a", "1");
  const int64_t second = store.Put("a", "2");
  EXPECT_GT(second, created);
  EXPECT_EQ(store.Ask<GetReply>(GetCall{{"a"}}).values[0].created_revision, created);
  store.Begin(DeleteCall{"a"});
  const int64_t third = store.Put("a", "3");
  EXPECT_EQ(store.Ask<GetReply>(GetCall{{"a"}}).values[0].created_revision, third);
}

TEST(Store, AnswersKeysInTheOrderAskedAndNamesTheMissing) {
  StoreTest store;
  store.Put("a", "1");
  store.Put("b", "2");
  const auto reply = store.Ask<GetReply>(GetCall{{"b", "x", "a", "b"}});
  EXPECT_THAT(KeysOf(reply.values), ElementsAre("b", "a", "b"));
  EXPECT_THAT(reply.missing_keys, ElementsAre("x"));
}

TEST(Store, RefusesAGetWhoseValuesExceedAnAnswer) {
  StoreTest store;
  store.limits().max_inline_bytes = 10;
  store.Put("a", "123456");
  store.Put("b", "123456");
  const absl::Status status = store.Try(GetCall{{"a", "b"}});
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("max_inline_bytes"), HasSubstr("12")));
  EXPECT_TRUE(store.Try(GetCall{{"a"}}).ok());
}

TEST(Store, PutsOnlyAtTheExpectedRevision) {
  struct Case {
    const char* what;
    bool present;
    int64_t offset;  // from the key's revision
    bool absolute_zero;
    bool written;
  };
  const Case kCases[] = {
      {"present at its revision", true, 0, false, true},
      {"present at another revision", true, -1, false, false},
      {"present, expected absent", true, 0, true, false},
      {"absent, expected absent", false, 0, true, true},
      {"absent, expected some revision", false, 7, false, false},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.what);
    StoreTest store;
    const int64_t revision = c.present ? store.Put("a", "old") : 0;
    PutCall put{"a", "new"};
    put.expected_revision = c.absolute_zero ? 0 : revision + c.offset;
    const auto reply = store.Ask<PutReply>(put);
    EXPECT_EQ(reply.written, c.written);
    EXPECT_EQ(store.Value("a"), c.written ? "new" : c.present ? "old" : "(none)");
    EXPECT_EQ(reply.current.has_value(), !c.written && c.present);
    if (reply.current.has_value()) {
      EXPECT_EQ(reply.current->value.bytes(), "old");
    }
  }
}

TEST(Store, RefusesToBindWithoutASession) {
  StoreTest store;
  PutCall put{"a", "1"};
  put.bind_to_session = true;
  EXPECT_EQ(store.Try(put).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(store.store().key_count(), 0);
}

TEST(Store, DeletesBoundKeysWithTheirSession) {
  StoreTest store;
  for (const char* key : {"b", "a", "c", "d"}) {
    PutCall put{key, "1"};
    put.bind_to_session = true;
    store.In(kSession(key[0] == 'c' ? 2 : 1)).Begin(put);
  }
  store.Put("d", "free again");
  store.Do([&](Step& step) { store.store().EndSession(step, kSession(1)); });
  EXPECT_THAT(KeysOf(store.Ask<RangeReply>(RangeCall{}).values), ElementsAre("c", "d"));
  EXPECT_EQ(store.RowCount(RecordKind::kKey), 2u);
}

// --- range, delete

TEST(Store, ListsAPrefixInPages) {
  StoreTest store;
  for (const char* key : {"a", "b/1", "b/2", "b/3", "c"}) store.Put(key, "v");
  RangeCall range{"b/"};
  range.page_size = 2;
  const auto first = store.Ask<RangeReply>(range);
  EXPECT_THAT(KeysOf(first.values), ElementsAre("b/1", "b/2"));
  EXPECT_EQ(first.next, "b/2");
  EXPECT_EQ(first.count, 3);
  range.after = first.next;
  const auto second = store.Ask<RangeReply>(range);
  EXPECT_THAT(KeysOf(second.values), ElementsAre("b/3"));
  EXPECT_EQ(second.next, "");
  EXPECT_EQ(second.count, 3);
}

TEST(Store, ListsEverythingInPages) {
  StoreTest store;
  for (int i = 0; i < 250; ++i) store.Put(absl::StrCat("key", 100 + i), "v");
  RangeCall range;
  int listed = 0;
  for (int page = 0; page < 3; ++page) {
    const auto reply = store.Ask<RangeReply>(range);
    listed += static_cast<int>(reply.values.size());
    EXPECT_EQ(reply.count, 250);
    range.after = reply.next;
  }
  EXPECT_EQ(range.after, "");
  EXPECT_EQ(listed, 250);
}

TEST(Store, EndsAPageBeforeItsValuesExceedAnAnswer) {
  StoreTest store;
  store.limits().max_inline_bytes = 10;
  for (const char* key : {"a", "b", "c"}) store.Put(key, "1234567");
  RangeCall range;
  EXPECT_THAT(KeysOf(store.Ask<RangeReply>(range).values), ElementsAre("a"));
  range.keys_only = true;
  const auto keys = store.Ask<RangeReply>(range);
  EXPECT_THAT(KeysOf(keys.values), ElementsAre("a", "b", "c"));
  EXPECT_FALSE(keys.values[0].value.has_value());
}

TEST(Store, CountsWithoutKeys) {
  StoreTest store;
  for (const char* key : {"a", "b/1", "b/2"}) store.Put(key, "v");
  for (const auto& [prefix, count] : {std::pair<const char*, int>{"", 3}, {"b/", 2}, {"z", 0}}) {
    RangeCall range{prefix};
    range.count_only = true;
    const auto reply = store.Ask<RangeReply>(range);
    EXPECT_EQ(reply.count, count) << prefix;
    EXPECT_TRUE(reply.values.empty());
  }
}

TEST(Store, DeletesOneKeyOrAPrefix) {
  StoreTest store;
  for (const char* key : {"a", "ab", "b/1", "b/2"}) store.Put(key, "v");
  EXPECT_EQ(store.Ask<DeleteReply>(DeleteCall{"a"}).deleted_count, 1);
  EXPECT_EQ(store.Ask<DeleteReply>(DeleteCall{"a"}).deleted_count, 0);
  EXPECT_EQ(store.Ask<DeleteReply>(DeleteCall{"b", true}).deleted_count, 2);
  EXPECT_THAT(KeysOf(store.Ask<RangeReply>(RangeCall{}).values), ElementsAre("ab"));
  EXPECT_EQ(store.Ask<DeleteReply>(DeleteCall{"", true}).deleted_count, 1);
  EXPECT_EQ(store.RowCount(RecordKind::kKey), 0u);
}

// --- add, append

TEST(Store, AddsFromZeroUpAndDown) {
  StoreTest store;
  EXPECT_EQ(store.Ask<AddReply>(AddCall{"n", 5}).value, 5);
  EXPECT_EQ(store.Ask<AddReply>(AddCall{"n", -7}).value, -2);
  EXPECT_EQ(store.Value("n"), "-2");
}

TEST(Store, RefusesToAddToWhatIsNoDecimal) {
  for (const char* value : {"", "x", " 1", "1 ", "1.5", "0x10", "9223372036854775808"}) {
    StoreTest store;
    store.Put("n", value);
    EXPECT_EQ(store.Try(AddCall{"n", 1}).code(), absl::StatusCode::kFailedPrecondition) << value;
    EXPECT_EQ(store.Value("n"), value);
  }
}

TEST(Store, RefusesToOverflow) {
  StoreTest store;
  store.Begin(AddCall{"n", std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(store.Try(AddCall{"n", 1}).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(store.Value("n"), "9223372036854775807");
  store.Begin(AddCall{"m", std::numeric_limits<int64_t>::min()});
  EXPECT_EQ(store.Try(AddCall{"m", -1}).code(), absl::StatusCode::kOutOfRange);
}

TEST(Store, Appends) {
  StoreTest store;
  EXPECT_EQ(store.Ask<AppendReply>(AppendCall{"a", "one"}).size_bytes, 3);
  EXPECT_EQ(store.Ask<AppendReply>(AppendCall{"a", ",two"}).size_bytes, 7);
  EXPECT_EQ(store.Value("a"), "one,two");
}

TEST(Store, AppendKeepsTheExpirationOfItsKey) {
  StoreTest store;
  PutCall put{"a", "one"};
  put.expiration = absl::Seconds(10);
  store.Begin(put);
  store.Ask<AppendReply>(AppendCall{"a", ",two"});
  EXPECT_EQ(store.Value("a"), "one,two");
  store.Advance(absl::Seconds(10));
  EXPECT_EQ(store.Value("a"), "(none)");
}

// --- queues

TEST(Store, PopsInTheOrderOfPushes) {
  StoreTest store;
  const int64_t first = store.Push("q", "1");
  EXPECT_EQ(store.Ask<QueuePushReply>(QueuePushCall{"q", "2"}).depth, 2);
  auto popped = store.Ask<QueuePopReply>(QueuePopCall{"q"});
  EXPECT_TRUE(popped.found);
  EXPECT_EQ(popped.value.bytes(), "1");
  EXPECT_EQ(popped.sequence, first);
  EXPECT_EQ(popped.receipt, 0);
  EXPECT_EQ(store.Ask<QueuePopReply>(QueuePopCall{"q"}).value.bytes(), "2");
  EXPECT_FALSE(store.Ask<QueuePopReply>(QueuePopCall{"q"}).found);
  popped.value.reset();  // bytes count as long as an answer has them
  EXPECT_EQ(store.ledger().held(), 0);
  EXPECT_EQ(store.RowCount(RecordKind::kQueueItem), 0u);
}

TEST(Store, PopsTheSameAgainUntilAcknowledged) {
  StoreTest store;
  store.Push("q", "1");
  store.Push("q", "2");
  const auto first = store.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"});
  EXPECT_NE(first.receipt, 0);
  const auto again = store.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"});
  EXPECT_EQ(again.value.bytes(), "1");
  EXPECT_EQ(again.sequence, first.sequence);
  EXPECT_EQ(again.receipt, first.receipt);
  EXPECT_EQ(store.RowCount(RecordKind::kQueueItem), 2u);

  store.Acknowledge(first.receipt);
  store.Acknowledge(first.receipt);
  store.Acknowledge(12345);
  EXPECT_EQ(store.RowCount(RecordKind::kQueueItem), 1u);
  EXPECT_EQ(store.store().unacknowledged_count(), 0);
  // A late repeat of the first pop does not take another value.
  EXPECT_FALSE(store.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"}).found);
  const auto next = store.With(kOperation(2)).Ask<QueuePopReply>(QueuePopCall{"q"});
  EXPECT_EQ(next.value.bytes(), "2");
}

TEST(Store, RefusesAPopThatRepeatsAnotherCall) {
  StoreTest store;
  store.Push("q", "1");
  store.With(kOperation(1)).Begin(QueuePopCall{"q"});
  EXPECT_EQ(store.With(kOperation(1)).Try(QueuePopCall{"r"}).code(),
            absl::StatusCode::kInvalidArgument);
  store.With(kOperation(2)).Begin(AddCall{"n", 1});
  EXPECT_EQ(store.With(kOperation(2)).Try(QueuePopCall{"q"}).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::coordinator
