// The store as PyTorch's TCPStore is used: queues, waits for keys or queues, several keys at once,
// compare and set; by frames and by gRPC.
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The parameter: whether calls go by framed RPC or by gRPC.
class StoreTest : public RendezvousTestBase, public ::testing::WithParamInterface<bool> {
 protected:
  std::unique_ptr<StoreClient> Store() {
    ConnectionOptions options;
    options.address = coordinator_.address();
    options.framed_rpc = GetParam();
    auto connection = Connection::Create(options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return StoreClient::Create(*connection, "");
  }
  // PyTorch's wait(keys, timeout): each name may be a key or a queue. Returns the missing names.
  static std::vector<std::string> Wait(StoreClient& store, const std::vector<std::string>& names,
                                       absl::Duration timeout) {
    GetOptions options;
    options.wait = timeout;
    options.or_queue = true;
    const auto result = store.Get(names, options, timeout + kLong);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? result->missing_keys : std::vector<std::string>{"no answer"};
  }
  static std::string Pop(StoreClient& store, const std::string& queue) {
    const auto item = store.QueuePop(queue, kLong);
    return item.ok() && item->has_value() ? (*item)->value : "(none)";
  }
};

INSTANTIATE_TEST_SUITE_P(Ways, StoreTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Frames" : "Grpc"; });

TEST_P(StoreTest, TwoThreadsTalkByQueues) {
  auto store = Store();
  std::thread worker([&] {
    auto own = Store();
    EXPECT_THAT(Wait(*own, {"a"}, kLong), IsEmpty());
    EXPECT_EQ(Pop(*own, "a"), "a1");
    EXPECT_EQ(Pop(*own, "a"), "a2");
    EXPECT_TRUE(own->QueuePush("b", "b1").ok());
  });
  EXPECT_TRUE(store->QueuePush("a", "a1").ok());
  EXPECT_TRUE(store->QueuePush("a", "a2").ok());
  EXPECT_THAT(Wait(*store, {"b"}, kLong), IsEmpty());
  EXPECT_EQ(store->QueueLen("b").value(), 1);
  EXPECT_EQ(Pop(*store, "b"), "b1");
  worker.join();
  EXPECT_EQ(store->QueueLen("a").value(), 0);
  EXPECT_EQ(store->QueueLen("b").value(), 0);
}

TEST_P(StoreTest, AWaitForAnEmptyQueueEndsByItsTimeoutAndNamesIt) {
  auto store = Store();
  EXPECT_TRUE(store->Put("key", "v").ok());
  EXPECT_TRUE(store->QueuePush("queue", "v").ok());
  EXPECT_THAT(Wait(*store, {"key", "queue", "empty"}, absl::Milliseconds(10)),
              ElementsAre("empty"));
  GetOptions options;
  options.wait = absl::Milliseconds(10);
  options.queues = {"queue", "empty"};
  const auto result = store->Get({}, options);
  ASSERT_TRUE(result.ok()) << result.status();
  ASSERT_EQ(result->queue_lengths.size(), 2u);
  EXPECT_EQ(result->queue_lengths[0].length, 1);
  EXPECT_EQ(result->queue_lengths[1].queue, "empty");
  EXPECT_EQ(result->queue_lengths[1].length, 0);
  const auto nothing = store->QueuePop("empty", absl::ZeroDuration());
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_FALSE(nothing->has_value());
}

TEST_P(StoreTest, ComparesAndSetsInOneCall) {
  auto store = Store();
  PutOptions expected;
  expected.expected_value = "wrong";
  auto refused = store->Put("key", "new", expected);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->written);
  EXPECT_FALSE(refused->current.has_value());
  expected.expected_value = "";  // as absent
  EXPECT_TRUE(store->Put("key", "first", expected)->written);
  refused = store->Put("key", "second", expected);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->written);
  EXPECT_EQ(refused->current->value, "first");
  expected.expected_value = "first";
  EXPECT_TRUE(store->Put("key", "second", expected)->written);
  EXPECT_EQ(store->Get({"key"})->values[0].value, "second");
}

TEST_P(StoreTest, PutsSeveralKeysAllOrNone) {
  auto store = Store();
  const auto put = store->MultiPut({{"foo", "po"}, {"bar", "tato"}});
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_TRUE(put->written);
  const auto both = store->Get({"foo", "bar"});
  ASSERT_TRUE(both.ok()) << both.status();
  ASSERT_EQ(both->values.size(), 2u);
  EXPECT_EQ(both->values[0].value, "po");
  EXPECT_EQ(both->values[1].value, "tato");
  EXPECT_EQ(both->values[1].revision, put->revision);

  PutEntry only_new{"foo", "new"};
  only_new.expected_revision = 0;
  const auto refused = store->MultiPut({{"other", "1"}, only_new});
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->written);
  EXPECT_EQ(refused->current->key, "foo");
  EXPECT_THAT(store->Get({"other"})->missing_keys, ElementsAre("other"));
  EXPECT_TRUE(absl::IsInvalidArgument(store->MultiPut({}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(store->MultiPut({{"a", "1"}, {"a", "2"}}).status()));
}

}  // namespace
}  // namespace cohort::client
