// Promises of all calls of the store: repeats act once, errors name their limit, and restarts
// keep written values.
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
using ::testing::HasSubstr;

using StoreTest = StoreHarness;
constexpr auto kOperation = &StoreHarness::Operation;
constexpr auto kSession = &StoreHarness::Session;

// --- repeats

TEST(Store, ActsOnceForAnOperationId) {
  StoreTest store;
  const auto twice = [&](auto call, auto reply) {
    using R = decltype(reply);
    const R first = store.With(kOperation(1)).Ask<R>(call);
    const int64_t revision = store.store().revision();
    const int records = store.record_count();
    const R second = store.With(kOperation(1)).Ask<R>(call);
    EXPECT_EQ(store.store().revision(), revision);
    EXPECT_EQ(store.record_count(), records);
    store.Do(
        [&](Step& step) { store.operations().Forget(step, StoreHarness::Key(), kOperation(1)); });
    return std::make_pair(first, second);
  };
  const auto added = twice(AddCall{"n", 3}, AddReply{});
  EXPECT_EQ(added.second.value, 3);
  EXPECT_EQ(added.second.revision, added.first.revision);
  const auto put = twice(PutCall{"a", "1"}, PutReply{});
  EXPECT_TRUE(put.second.written);
  EXPECT_EQ(put.second.revision, put.first.revision);
  EXPECT_EQ(twice(AppendCall{"a", "2"}, AppendReply{}).second.size_bytes, 2);
  EXPECT_EQ(twice(QueuePushCall{"q", "1"}, QueuePushReply{}).second.depth, 1);
  EXPECT_EQ(twice(DeleteCall{"a"}, DeleteReply{}).second.deleted_count, 1);
}

TEST(Store, DoesNotDeleteWhatWasPutAfterTheFirstDelete) {
  StoreTest store;
  EXPECT_EQ(store.With(kOperation(1)).Ask<DeleteReply>(DeleteCall{"a"}).deleted_count, 0);
  store.Put("a", "1");
  EXPECT_EQ(store.With(kOperation(1)).Ask<DeleteReply>(DeleteCall{"a"}).deleted_count, 0);
  EXPECT_EQ(store.Value("a"), "1");
}

TEST(Store, DoesNotWriteForALateRepeatOfARefusedPut) {
  StoreTest store;
  store.Put("a", "1");
  PutCall put{"a", "2"};
  put.expected_revision = 0;
  EXPECT_FALSE(store.With(kOperation(1)).Ask<PutReply>(put).written);
  store.Begin(DeleteCall{"a"});
  EXPECT_FALSE(store.With(kOperation(1)).Ask<PutReply>(put).written);
  EXPECT_EQ(store.Value("a"), "(none)");
}

TEST(Store, RefusesAnOperationIdOfAnotherCall) {
  StoreTest store;
  store.With(kOperation(1)).Begin(AddCall{"n", 1});
  EXPECT_EQ(store.With(kOperation(1)).Try(PutCall{"n", "7"}).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store.Value("n"), "1");
}

// --- limits: an error names the limit and changes nothing

TEST(Store, RefusesAboveEachLimit) {
  struct Case {
    const char* name;
    int64_t Limits::*limit;
    int64_t value;
    CallBody call;
  };
  const Case kCases[] = {
      {"max_keys", &Limits::max_keys, 1, PutCall{"b", "1"}},
      {"max_keys", &Limits::max_keys, 1, AddCall{"b", 1}},
      {"max_keys", &Limits::max_keys, 1, AppendCall{"b", "1"}},
      {"max_value_bytes", &Limits::max_value_bytes, 3, PutCall{"a", "1234"}},
      {"max_value_bytes", &Limits::max_value_bytes, 3, AppendCall{"a", "34"}},
      {"max_value_bytes", &Limits::max_value_bytes, 3, QueuePushCall{"r", "1234"}},
      {"max_queue_depth", &Limits::max_queue_depth, 1, QueuePushCall{"q", "1"}},
      {"max_group_bytes_held", &Limits::max_group_bytes_held, 6, PutCall{"b", "123"}},
      {"max_group_bytes_held", &Limits::max_group_bytes_held, 6, QueuePushCall{"r", "123"}},
      {"max_bytes_held", &Limits::max_bytes_held, 6, PutCall{"b", "123"}},
      {"max_bytes_held", &Limits::max_bytes_held, 6, QueuePushCall{"r", "123"}},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(absl::StrCat(c.name, ", call ", c.call.index()));
    StoreTest store;
    store.Put("a", "12");
    store.Push("q", "12");
    store.limits().*c.limit = c.value;
    const int64_t revision = store.store().revision();
    const int records = store.record_count();
    const int64_t held = store.ledger().held();
    absl::Status status;
    if (const auto* put = std::get_if<PutCall>(&c.call)) status = store.Try(*put);
    if (const auto* add = std::get_if<AddCall>(&c.call)) status = store.Try(*add);
    if (const auto* append = std::get_if<AppendCall>(&c.call)) status = store.Try(*append);
    if (const auto* push = std::get_if<QueuePushCall>(&c.call)) status = store.Try(*push);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(absl::StrCat("limit ", c.name)), HasSubstr(absl::StrCat(c.value))));
    EXPECT_EQ(store.store().revision(), revision);
    EXPECT_EQ(store.record_count(), records);
    EXPECT_EQ(store.ledger().held(), held);
  }
}

TEST(Store, CountsUnacknowledgedItemsAgainstTheDepth) {
  StoreTest store;
  store.limits().max_queue_depth = 1;
  store.Push("q", "1");
  const auto popped = store.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"});
  EXPECT_EQ(store.Try(QueuePushCall{"q", "2"}).code(), absl::StatusCode::kResourceExhausted);
  store.Acknowledge(popped.receipt);
  EXPECT_TRUE(store.Try(QueuePushCall{"q", "2"}).ok());
}

TEST(Store, ReplacesAValueAtTheBytesLimitByGivingUpHistory) {
  StoreTest store;
  store.limits().max_group_bytes_held = 100;
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(store.Try(PutCall{"a", std::string(90, 'x')}).ok());
    EXPECT_LE(store.ledger().held(), 100);
  }
}

// --- after a restart

TEST(Store, RestoresWhatItWrote) {
  StoreTest before;
  before.Put("a", "1");
  PutCall bound{"s", "2"};
  bound.bind_to_session = true;
  before.In(kSession(1)).Begin(bound);
  PutCall brief{"t", "3"};
  brief.expiration = absl::Seconds(5);
  before.Begin(brief);
  before.Push("q", "x");
  before.Push("q", "y");
  const auto popped = before.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"});
  before.With(kOperation(2)).Begin(AddCall{"n", 4});
  const int64_t last = before.store().revision();

  StoreTest after(2, before.rows());
  EXPECT_EQ(after.ledger().held(), 6);
  EXPECT_GT(after.store().revision(), last);
  EXPECT_EQ(after.Value("a"), "1");
  EXPECT_EQ(after.With(kOperation(2)).Ask<AddReply>(AddCall{"n", 4}).value, 4);
  const auto again = after.With(kOperation(1)).Ask<QueuePopReply>(QueuePopCall{"q"});
  EXPECT_EQ(again.value.bytes(), "x");
  EXPECT_EQ(again.receipt, popped.receipt);
  EXPECT_EQ(after.Ask<QueuePopReply>(QueuePopCall{"q"}).value.bytes(), "y");
  after.Acknowledge(popped.receipt);
  EXPECT_EQ(after.RowCount(RecordKind::kQueueItem), 0u);
  after.Do([&](Step& step) { after.store().EndSession(step, kSession(1)); });
  EXPECT_EQ(after.Value("s"), "(none)");
  after.Advance(absl::Seconds(5));
  EXPECT_EQ(after.Value("t"), "(none)");
  EXPECT_EQ(after.Try(WatchKeysCall{"", last}).code(), absl::StatusCode::kOutOfRange);
}

TEST(Store, IsIdleWhenItKeepsNoDataAndNoHistory) {
  StoreTest store;
  EXPECT_TRUE(store.store().idle());
  store.Put("a", "1");
  store.Begin(DeleteCall{"a"});
  EXPECT_FALSE(store.store().idle());
  store.Advance(Store::kHistoryAge);
  EXPECT_TRUE(store.store().idle());
  EXPECT_EQ(store.ledger().held(), 0);
  EXPECT_EQ(store.shard().timers.Next(), absl::InfiniteFuture());
}

}  // namespace
}  // namespace cohort::coordinator
