// The asynchronous calls of members and of the store, with a coordinator: each has the result of
// the blocking call of its name.
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

// Runs `start(done)` and waits for the result.
template <typename T>
absl::StatusOr<T> Await(const std::function<void(std::function<void(absl::StatusOr<T>)>)>& start) {
  auto promise = std::make_shared<std::promise<absl::StatusOr<T>>>();
  std::future<absl::StatusOr<T>> future = promise->get_future();
  start([promise](absl::StatusOr<T> value) { promise->set_value(std::move(value)); });
  if (future.wait_for(absl::ToChronoMilliseconds(kLong)) != std::future_status::ready) {
    return absl::InternalError("no answer");
  }
  return future.get();
}
absl::Status AwaitStatus(const std::function<void(std::function<void(absl::Status)>)>& start) {
  return Await<bool>([&](auto done) {
           start([done](absl::Status status) {
             if (status.ok()) return done(true);
             done(std::move(status));
           });
         })
      .status();
}

std::vector<std::string> Texts(const absl::StatusOr<ObjectList>& list) {
  if (!list.ok()) return {std::string(list.status().message())};
  return {list->begin(), list->end()};
}

class AsyncCallsTest : public RendezvousTestBase {};

TEST_F(AsyncCallsTest, ObjectsAndRounds) {
  const std::string large(3 << 20, 'x');
  OnAllRanks(3, [&](ProcessGroup& group) {
    AsyncProcessGroup& calls = group.async();
    const int rank = group.rank();
    const int next = (rank + 1) % 3, previous = (rank + 2) % 3;
    for (const std::string& object : {absl::StrCat("from ", rank), large}) {
      EXPECT_TRUE(AwaitStatus([&](auto done) { calls.Send(object, next, "t", {}, done); }).ok());
      const auto received =
          Await<ReceivedObject>([&](auto done) { calls.Receive(previous, "t", {}, done); });
      ASSERT_TRUE(received.ok()) << received.status();
      EXPECT_EQ(received->source, previous);
      EXPECT_EQ(received->bytes, object == large ? large : absl::StrCat("from ", previous));
    }
    const std::string own = absl::StrCat("r", rank);
    EXPECT_EQ(*Await<std::string>([&](auto done) { calls.Broadcast(own, 1, {}, done); }), "r1");
    EXPECT_EQ(*Await<std::string>([&](auto done) { calls.Broadcast(large, 2, {}, done); }), large);
    EXPECT_THAT(Texts(Await<ObjectList>([&](auto done) { calls.AllGather(own, {}, done); })),
                ElementsAre("r0", "r1", "r2"));
    const auto gathered =
        Texts(Await<ObjectList>([&](auto done) { calls.Gather(own, 2, {}, done); }));
    EXPECT_THAT(gathered, SizeIs(rank == 2 ? 3 : 0));
    for (const std::string& first : {std::string("a"), large}) {
      const std::vector<std::string> parts =
          rank == 0 ? std::vector<std::string>{first, "b", "c"} : std::vector<std::string>();
      const auto scattered =
          Await<std::string>([&](auto done) { calls.Scatter(parts, 0, {}, done); });
      ASSERT_TRUE(scattered.ok()) << scattered.status();
      EXPECT_EQ(*scattered, rank == 0 ? first : rank == 1 ? "b" : "c");
    }
    const auto vote =
        Await<VoteResult>([&](auto done) { calls.Vote(rank + 1, VoteOp::kSum, {}, done); });
    ASSERT_TRUE(vote.ok()) << vote.status();
    EXPECT_EQ(vote->value, 6);
    const auto alive =
        Await<std::vector<RankRange>>([&](auto done) { calls.AgreeAlive({}, done); });
    ASSERT_TRUE(alive.ok()) << alive.status();
    EXPECT_EQ(RankSet::FromRanges(*alive).count(), 3);
    if (rank == 0) {
      EXPECT_TRUE(
          AwaitStatus([&](auto done) { calls.PublishUniqueIds("n", {"i", "j"}, {}, done); }).ok());
    } else {
      const auto ids = Await<std::vector<std::string>>(
          [&](auto done) { calls.FetchUniqueIds("n", {}, done); });
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_THAT(*ids, ElementsAre("i", "j"));
    }
  });
}

TEST_F(AsyncCallsTest, BlockingAndAsynchronousCallsMeetInOneRound) {
  OnAllRanks(2, [](ProcessGroup& group) {
    for (int i = 0; i < 3; ++i) {
      if ((group.rank() + i) % 2 == 0) {
        EXPECT_TRUE(group.Barrier().ok());
        continue;
      }
      const absl::Status status = AwaitStatus([&](auto done) {
        group.async().Barrier({}, [done](absl::Status end, const RoundReport& report) {
          EXPECT_GT(report.number, 0);
          done(std::move(end));
        });
      });
      EXPECT_TRUE(status.ok()) << status;
    }
  });
}

TEST_F(AsyncCallsTest, MembershipAndItsEnd) {
  std::atomic<bool> was_cancelled{false};
  OnAllRanks(2, [&](ProcessGroup& group) {
    AsyncProcessGroup& calls = group.async();
    const auto info = Await<GroupInfo>([&](auto done) { calls.Describe({}, done); });
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_THAT(info->members, SizeIs(2));
    EXPECT_EQ(*Await<int64_t>([&](auto done) { calls.ExpireData({}, {}, done); }), 0);
    EXPECT_TRUE(
        AwaitStatus([&](auto done) { calls.ReportError("odd", false, {}, {}, done); }).ok());
    if (group.rank() == 1) {
      const absl::Status waited = group.Barrier({"cancelled"});
      EXPECT_EQ(waited.code(), absl::StatusCode::kCancelled) << waited;
      was_cancelled = true;
      return;
    }
    // Until rank 1 waits there, this finds no barrier.
    EXPECT_TRUE(Eventually([&] {
      AwaitStatus([&](auto done) { calls.CancelBarrier("cancelled", "why", {}, done); })
          .IgnoreError();
      return was_cancelled.load();
    }));
  });
  auto group = ProcessGroup::Create(Options(0, 1));
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_TRUE(AwaitStatus([&](auto done) { (*group)->async().Leave("done", {}, done); }).ok());
  EXPECT_EQ((*group)->Barrier().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(AsyncCallsTest, Rejoining) {
  auto group = ProcessGroup::Create(Options(0, 1));
  ASSERT_TRUE(group.ok()) << group.status();
  EXPECT_EQ((*group)->ReportError("over", true), absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return absl::IsAborted((*group)->Barrier()); }));
  EXPECT_EQ(AwaitStatus([&](auto done) { (*group)->async().Rejoin({}, done); }), absl::OkStatus());
  EXPECT_EQ((*group)->generation(), 2);
}

TEST_F(AsyncCallsTest, KeysAndQueues) {
  auto store = StoreClient::Create(Connect(), "");
  AsyncStoreClient& calls = store->async();
  GetOptions wait;
  wait.wait = kLong;
  std::promise<absl::StatusOr<GetResult>> waiting;
  calls.Get({"k"}, wait, {kLong, nullptr},
            [&](absl::StatusOr<GetResult> result) { waiting.set_value(std::move(result)); });
  const auto put = Await<PutResult>([&](auto done) { calls.Put("k", "v", {}, {}, done); });
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_TRUE(put->written);
  const auto got = waiting.get_future().get();
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->values[0].value, "v");
  EXPECT_FALSE(Await<PutResult>([&](auto done) { calls.MultiPut({}, {}, {}, done); }).ok());
  EXPECT_TRUE(
      Await<PutResult>([&](auto done) { calls.MultiPut({{"l", "w"}}, {}, {}, done); })->written);
  EXPECT_EQ(*Await<int64_t>([&](auto done) { calls.Add("n", 3, {}, done); }), 3);
  EXPECT_EQ(*Await<int64_t>([&](auto done) { calls.Append("k", "w", {}, done); }), 2);
  EXPECT_THAT(Await<RangeResult>([&](auto done) { calls.Range("", {}, {}, done); })->values,
              SizeIs(3));
  EXPECT_EQ(*Await<int64_t>([&](auto done) { calls.Delete("k", false, {}, done); }), 1);

  using Item = std::optional<QueueItem>;
  EXPECT_TRUE(
      Await<int64_t>([&](auto done) { calls.QueuePush("q", "first", {}, {}, done); }).ok());
  const auto item = Await<Item>([&](auto done) { calls.QueuePop("q", kLong, {}, done); });
  ASSERT_TRUE(item.ok()) << item.status();
  EXPECT_EQ((*item)->value, "first");
  EXPECT_FALSE(Await<Item>([&](auto done) { calls.QueuePop("q", {}, {}, done); })->has_value());
}

// Over gRPC the push may reach the coordinator before the end of the pop.
TEST_F(AsyncCallsTest, ACancelledWaitForAQueueTakesNothing) {
  for (const bool framed_rpc : {true, false}) {
    ConnectionOptions options;
    options.address = coordinator_.address();
    options.framed_rpc = framed_rpc;
    auto store = StoreClient::Create(Connection::Create(options).value(), "");
    for (int i = 0; i < 100; ++i) {
      const std::string queue = absl::StrCat("q", framed_rpc, i);
      auto cancellation = std::make_shared<Cancellation>();
      std::promise<absl::Status> end;
      store->async().QueuePop(queue, kLong, {kLong, cancellation},
                              [&](const absl::StatusOr<std::optional<QueueItem>>& item) {
                                end.set_value(item.status());
                              });
      cancellation->Cancel(absl::CancelledError("never mind"));
      EXPECT_EQ(end.get_future().get(), absl::CancelledError("never mind"));
      EXPECT_TRUE(store->QueuePush(queue, "kept").ok());
      const auto item = store->QueuePop(queue, kLong);
      ASSERT_TRUE(item.ok()) << item.status();
      ASSERT_TRUE(item->has_value()) << "framed RPC " << framed_rpc << ", pop " << i;
      EXPECT_EQ((*item)->value, "kept");
    }
  }
}

}  // namespace
}  // namespace cohort::client
