// One file, though long: all tests write requests to one server by hand, and read its answers.
#include "coordinator/service/tcpstore/tcpstore_server.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "coordinator/service/tcpstore/testing/tcpstore_test_client.h"
#include "coordinator/service/testing/rpc_server_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator::tcpstore {
namespace {

using ::testing::HasSubstr;

// Numbers of PyTorch 2.
enum {
  kSet = 1,
  kGet = 3,
  kAdd = 4,
  kWait = 6,
  kNumKeys = 7,
  kMultiSet = 11,
  kCancel = 12,
  kPing = 13,
  kPush = 14,
  kPop = 15,
  kListKeys = 17,
  kBarrier = 18
};

std::string Set(const std::string& key, const std::string& value) {
  return RequestBytes(kSet, {TextBytes(key), TextBytes(value)});
}
std::string Get(const std::string& key) { return RequestBytes(kGet, {TextBytes(key)}); }
std::string Wait(const std::string& key) {
  return RequestBytes(kWait, {NumberBytes(1), TextBytes(key)});
}
std::string Barrier(const std::string& key, uint64_t size) {
  return RequestBytes(kBarrier, {TextBytes(key), NumberBytes(size)});
}
const std::string kStop(1, '\0');
const std::string kCancelled(1, '\1');

class TcpStoreServerTest : public RpcServerTestBase {
 protected:
  void SetUp() override {
    server_options_.listen = {"127.0.0.1:0", "127.0.0.1:0"};
    server_options_.tcpstore_threads = 2;  // so that two clients act at the same time
    RpcServerTestBase::SetUp();
  }

  int Port(size_t index = 0) const {
    const std::string& address = server_->addresses()[index];
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
    return port;
  }
  std::unique_ptr<TestClient> Connect(size_t index = 0) {
    return std::make_unique<TestClient>(Port(index), Hello());
  }
  static uint64_t KeysSeenBy(TestClient& client) {
    uint64_t keys = 0;
    const std::string bytes = client.Ask(RequestBytes(kNumKeys, {}), sizeof(keys));
    EXPECT_EQ(bytes.size(), sizeof(keys));
    if (bytes.size() == sizeof(keys)) std::memcpy(&keys, bytes.data(), sizeof(keys));
    return keys;
  }
  // The calls that wait in the store of the first port.
  v1::DumpWaitsResponse Waits() {
    v1::DumpWaitsRequest request;
    request.mutable_scope()->set_tenant(TenantOfPort(Port()));
    v1::DumpWaitsResponse response;
    grpc::ClientContext context;
    const grpc::Status status =
        v1::AdminService::NewStub(channel_)->DumpWaits(&context, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response;
  }
  // Waits until so many calls wait in the state machine.
  void AwaitParkedCalls(int64_t count) {
    const absl::Time end = absl::Now() + kTimeout;
    while (engine_->Stats().total.waiter_count != count && absl::Now() < end) {
      std::this_thread::yield();
    }
    ASSERT_EQ(engine_->Stats().total.waiter_count, count);
  }
};

TEST_F(TcpStoreServerTest, EachPortIsAStoreOfItsOwn) {
  const auto first = Connect(0), second = Connect(1);
  first->Send(Set("k", "one"));
  EXPECT_EQ(first->Ask(Get("k"), 11), TextBytes("one"));
  EXPECT_EQ(second->Ask(Get("k"), 8), TextBytes(""));
  second->Send(Set("k", "two"));
  EXPECT_EQ(second->Ask(Get("k"), 11), TextBytes("two"));
  EXPECT_EQ(first->Ask(Get("k"), 11), TextBytes("one"));
}

TEST_F(TcpStoreServerTest, TheKeysAndQueuesOfAStoreEndWithItsLastClient) {
  auto first = Connect();
  auto second = Connect();
  EXPECT_EQ(KeysSeenBy(*second), 0u);  // it has come before the first one goes
  first->Send(Set("k", "v") + RequestBytes(kPush, {TextBytes("q"), TextBytes("item")}));
  EXPECT_EQ(KeysSeenBy(*first), 1u);
  first.reset();
  EXPECT_EQ(KeysSeenBy(*second), 1u);
  second.reset();
  // The coordinator notices the end some time later, and until then the store is the old one.
  const absl::Time end = absl::Now() + kTimeout;
  uint64_t keys = 1;
  std::string item;
  while (keys > 0 && absl::Now() < end) {
    const auto third = Connect();
    keys = KeysSeenBy(*third);
    item = third->Ask(RequestBytes(kPop, {TextBytes("q")}), 8);
  }
  EXPECT_EQ(keys, 0u);
  EXPECT_EQ(item, NumberBytes(0));
}

std::string AddRank() { return RequestBytes(kAdd, {TextBytes("init/"), NumberBytes(1)}); }

TEST_F(TcpStoreServerTest, ShortConnectionsEndNoStoreOfOthers) {
  auto first = Connect();
  const auto second = Connect();
  first->Send(Set("k", "v"));
  EXPECT_EQ(KeysSeenBy(*first), 1u);
  EXPECT_EQ(KeysSeenBy(*second), 1u);
  const std::string kinds[] = {"",
                               Hello().substr(0, 2),
                               Hello(),
                               Hello() + Get("k"),
                               Hello() + Wait("never"),
                               Hello() + Set("k", "v").substr(0, 12),
                               "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                               "GET / HTTP/1.1\r\n"};
  for (int i = 0; i < 800; ++i) {
    const TestClient brief(Port(), kinds[i % 8]);
    if (i % 50 != 0) continue;
    ASSERT_EQ(first->Ask(Get("k"), 9), TextBytes("v")) << i;
    ASSERT_EQ(second->Ask(Get("k"), 9), TextBytes("v")) << i;
  }
  first.reset();
  EXPECT_EQ(second->Ask(Get("k"), 9), TextBytes("v"));
  AwaitParkedCalls(0);
  EXPECT_EQ(KeysSeenBy(*second), 1u);
}

// As ranks of init_process_group do. Rank 1 is stopped, or its pod ends slowly.
TEST_F(TcpStoreServerTest, AStragglerOfADeadJobDoesNotPassItsStateOn) {
  auto rank_0 = Connect();
  const auto rank_1 = Connect();
  EXPECT_EQ(rank_0->Ask(AddRank(), 8), NumberBytes(1));
  EXPECT_EQ(rank_1->Ask(AddRank(), 8), NumberBytes(2));
  rank_0->Send(Set("address", "of rank 0"));
  EXPECT_EQ(rank_0->Ask(Get("address"), 17), TextBytes("of rank 0"));
  rank_0.reset();
  // The coordinator notices the end some time later.
  const absl::Time end = absl::Now() + kTimeout;
  std::unique_ptr<TestClient> next;
  std::string ranks;
  while (ranks != NumberBytes(1) && absl::Now() < end) {
    next = Connect();
    ranks = next->Ask(AddRank(), 8);
  }
  EXPECT_EQ(ranks, NumberBytes(1));
  EXPECT_EQ(next->Ask(Get("address"), 8), TextBytes(""));
  EXPECT_TRUE(rank_1->Closed());
  const auto other = Connect();
  EXPECT_EQ(other->Ask(AddRank(), 8), NumberBytes(2));
}

// A tool, or a second connection of a rank.
TEST_F(TcpStoreServerTest, AClientThatIsNoRankEndsNoJobWhileRanksCome) {
  std::vector<std::unique_ptr<TestClient>> ranks;
  for (uint64_t rank = 1; rank <= 20; ++rank) {
    ranks.push_back(Connect());
    ASSERT_EQ(ranks.back()->Ask(AddRank(), 8), NumberBytes(rank));
    if (rank == 1) ranks[0]->Send(Set("address", "of rank 0"));
    EXPECT_EQ(ranks[0]->Ask(Get("address"), 17), TextBytes("of rank 0"));
    EXPECT_EQ(Connect()->Ask(Get("address"), 17), TextBytes("of rank 0"));
  }
}

// torchrun's agents count themselves under no key, and start their workers again. A worker that
// makes several process groups over one connection counts itself several times.
TEST_F(TcpStoreServerTest, TheStoreOfAnAgentOutlivesItsWorkers) {
  const auto agent = Connect();
  agent->Send(Set("rendezvous", "state"));
  EXPECT_EQ(KeysSeenBy(*agent), 1u);
  for (uint64_t attempt = 0; attempt < 20; ++attempt) {
    const auto worker = Connect();
    EXPECT_EQ(worker->Ask(AddRank(), 8), NumberBytes(2 * attempt + 1));
    EXPECT_EQ(worker->Ask(AddRank(), 8), NumberBytes(2 * attempt + 2));
  }
  EXPECT_EQ(agent->Ask(Get("rendezvous"), 13), TextBytes("state"));
}

// A probe, a scanner, or a client that has sent half a request.
TEST_F(TcpStoreServerTest, AConnectionWithoutARequestIsNoClient) {
  auto first = Connect();
  first->Send(Set("k", "v"));
  ASSERT_EQ(KeysSeenBy(*first), 1u);
  v1::PutRequest put;
  put.mutable_scope()->set_tenant(TenantOfPort(Port(1)));
  put.set_key("of a launcher");
  v1::PutResponse written;
  grpc::ClientContext context;
  ASSERT_TRUE(v1::StoreService::NewStub(channel_)->Put(&context, put, &written).ok());
  // Clients that only read leave it, too.
  for (const std::string& bytes :
       {std::string(), RequestBytes(kPing, {std::string(4, 'p')}), Set("k", "v").substr(0, 12),
        Get("of a launcher"), RequestBytes(kNumKeys, {})}) {
    TestClient probe(Port(1), Hello() + bytes);
    probe.EndSending();
    EXPECT_TRUE(probe.ReadAll());
  }
  EXPECT_EQ(KeysSeenBy(*Connect(1)), 1u);
}

TEST_F(TcpStoreServerTest, AConnectionWithoutARequestKeepsNoKeyOfADeadJob) {
  const auto silent = Connect();
  const auto pinging = Connect();
  const std::string ping = RequestBytes(kPing, {std::string(4, 'p')});
  ASSERT_EQ(pinging->Ask(ping, 4), std::string(4, 'p'));
  auto last = Connect();
  last->Send(Set("k", "v"));
  ASSERT_EQ(KeysSeenBy(*last), 1u);
  last.reset();
  // The coordinator notices the end some time later, and until then the store is the old one.
  uint64_t keys = 1;
  for (const absl::Time end = absl::Now() + kTimeout; keys > 0 && absl::Now() < end;) {
    keys = KeysSeenBy(*Connect());
  }
  EXPECT_EQ(keys, 0u);
  EXPECT_EQ(pinging->Ask(ping, 4), std::string(4, 'p'));
  EXPECT_EQ(KeysSeenBy(*silent), 0u);
}

TEST_F(TcpStoreServerTest, AWaitEndsWhenItsKeyIsSet) {
  const auto waiting = Connect(), setting = Connect();
  waiting->Send(Wait("k"));
  AwaitParkedCalls(1);
  setting->Send(Set("other", ""));
  setting->Send(Set("k", "v"));
  EXPECT_EQ(waiting->Read(1), kStop);
}

TEST_F(TcpStoreServerTest, WaitsAreShownWithTheirClientAndKey) {
  const auto waiting = Connect();
  waiting->Send(Wait("a key"));
  AwaitParkedCalls(1);
  const v1::DumpWaitsResponse waits = Waits();
  ASSERT_EQ(waits.calls_size(), 1);
  EXPECT_THAT(waits.calls(0).member(), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(waits.calls(0).operation(), "get a key");
}

TEST_F(TcpStoreServerTest, ACancelledWaitIsOver) {
  const auto waiting = Connect(), setting = Connect();
  waiting->Send(Wait("k"));
  AwaitParkedCalls(1);
  EXPECT_EQ(waiting->Ask(RequestBytes(kCancel, {}), 1), kCancelled);
  AwaitParkedCalls(0);
  setting->Send(Set("k", "v"));
  EXPECT_EQ(setting->Ask(Get("k"), 9), TextBytes("v"));  // the answer says that it is set
  EXPECT_EQ(waiting->Ask(Get("k"), 9), TextBytes("v"));
}

// A client cancels a wait while another one ends it: it may get the end of the wait first, but
// never after the answer to its cancellation.
TEST_F(TcpStoreServerTest, ACancellationBesideTheEndOfItsWait) {
  const auto waiting = Connect(), setting = Connect();
  for (int i = 0; i < 500; ++i) {
    const std::string key = absl::StrCat("k", i);
    waiting->Send(Wait(key));
    setting->Send(Set(key, ""));
    waiting->Send(RequestBytes(kCancel, {}));
    std::string answer = waiting->Read(1);
    if (answer == kStop) answer = waiting->Read(1);
    ASSERT_EQ(answer, kCancelled) << i;
    // Nothing is left of either.
    ASSERT_EQ(waiting->Ask(RequestBytes(kAdd, {TextBytes("n"), NumberBytes(1)}), 8),
              NumberBytes(static_cast<uint64_t>(i) + 1));
  }
}

TEST_F(TcpStoreServerTest, AClientOfPyTorch1GivesUpAWaitWithoutAWord) {
  TestClient client(Port(), RequestBytes(5, {NumberBytes(1), TextBytes("k")}));
  AwaitParkedCalls(1);
  EXPECT_EQ(client.Ask(RequestBytes(3, {TextBytes("n"), NumberBytes(7)}), 8), NumberBytes(7));
}

TEST_F(TcpStoreServerTest, ABarrierOfAllClientsReleasesThem) {
  std::vector<std::unique_ptr<TestClient>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(Connect());
  for (int round = 0; round < 10; ++round) {
    for (const auto& client : clients) client->Send(Barrier("b", 4));
    for (const auto& client : clients) EXPECT_EQ(client->Read(1), kStop) << round;
  }
  EXPECT_EQ(KeysSeenBy(*clients[0]), 0u);
}

TEST_F(TcpStoreServerTest, ABarrierDoesNotCountClientsThatHaveLeftIt) {
  const auto first = Connect(), second = Connect();
  first->Send(Barrier("b", 2));
  AwaitParkedCalls(1);
  EXPECT_EQ(first->Ask(RequestBytes(kCancel, {}), 1), kCancelled);
  {
    const auto gone = Connect();
    gone->Send(Barrier("b", 2));
    AwaitParkedCalls(1);
  }
  AwaitParkedCalls(0);
  second->Send(Barrier("b", 2));
  AwaitParkedCalls(1);
  EXPECT_THAT(Waits().calls(0).operation(), HasSubstr("get b (barrier of 2"));
  EXPECT_EQ(first->Ask(Barrier("b", 2), 1), kStop);
  EXPECT_EQ(second->Read(1), kStop);
}

TEST_F(TcpStoreServerTest, ABarrierThatAllHaveLeftMayHaveAnotherSize) {
  const auto first = Connect(), second = Connect();
  first->Send(Barrier("b", 3));
  AwaitParkedCalls(1);
  EXPECT_EQ(first->Ask(RequestBytes(kCancel, {}), 1), kCancelled);
  first->Send(Barrier("b", 2));
  AwaitParkedCalls(1);
  EXPECT_EQ(second->Ask(Barrier("b", 2), 1), kStop);
  EXPECT_EQ(first->Read(1), kStop);
}

class RefusedBarrierTest : public TcpStoreServerTest {
 protected:
  void SetUp() override {
    engine_options_.limits.max_tenant_waiters = 1;
    engine_options_.limits.max_keys = 1;
    TcpStoreServerTest::SetUp();
  }
};

TEST_F(RefusedBarrierTest, AClientWhoseWaitIsRefusedDoesNotCount) {
  const auto first = Connect(), second = Connect(), third = Connect(), fourth = Connect();
  first->Send(Barrier("b", 3));
  AwaitParkedCalls(1);
  second->Send(Barrier("b", 3));
  EXPECT_TRUE(second->Closed());
  third->Send(Barrier("b", 3));
  EXPECT_TRUE(third->Closed());  // it is not the last one, and so it waits, too
  EXPECT_EQ(KeysSeenBy(*fourth), 0u);
  EXPECT_EQ(engine_->Stats().total.waiter_count, 1);
}

TEST_F(RefusedBarrierTest, ARefusedReleaseClosesTheConnectionOfEachClient) {
  const auto first = Connect(), second = Connect();
  second->Send(Set("full", ""));
  EXPECT_EQ(KeysSeenBy(*second), 1u);
  first->Send(Barrier("b", 2));
  AwaitParkedCalls(1);
  second->Send(Barrier("b", 2));
  EXPECT_TRUE(first->Closed());
  second->Read(1);  // it may have been told that it goes on
  EXPECT_TRUE(second->Closed());
}

TEST_F(TcpStoreServerTest, BarriersOfDifferentSizesCloseTheConnection) {
  const auto first = Connect(), second = Connect(), third = Connect();
  first->Send(Barrier("b", 3));
  AwaitParkedCalls(1);
  second->Send(Barrier("b", 2));
  EXPECT_TRUE(second->Closed());
  third->Send(Barrier("c", 0));
  EXPECT_TRUE(third->Closed());
}

TEST_F(TcpStoreServerTest, AFailedRequestClosesItsConnectionAlone) {
  const auto other = Connect();
  other->Send(Set("text", "abc"));
  EXPECT_EQ(other->Ask(Get("text"), 11), TextBytes("abc"));
  for (const std::string& bytes :
       {RequestBytes(kAdd, {TextBytes("text"), NumberBytes(1)}),     // not a number
        RequestBytes(99, {}),                                        // no operation
        RequestBytes(kSet, {TextBytes("k"), NumberBytes(1 << 30)}),  // a value over the limit
        RequestBytes(kGet, {TextBytes("\xc3")})}) {                  // not UTF-8
    const auto client = Connect();
    client->Send(bytes);
    EXPECT_TRUE(client->Closed()) << bytes;
    EXPECT_EQ(other->Ask(Get("text"), 11), TextBytes("abc"));
  }
}

// Then the coordinator does not read from it, and must hear of its end in another way.
TEST_F(TcpStoreServerTest, AClientThatGoesWithVeryManyWaitsLeavesNone) {
  const auto other = Connect();
  {
    const auto client = Connect();
    for (int i = 0; i < 1100; ++i) client->Send(Wait("never"));
    AwaitParkedCalls(1024);
  }
  AwaitParkedCalls(0);
  EXPECT_EQ(KeysSeenBy(*other), 0u);
}

// The coordinator stops to read at the 1024th, and goes on once answers leave.
TEST_F(TcpStoreServerTest, AClientWithVeryManyWaitsIsReadAgainAfterTheirEnd) {
  const auto client = Connect(), other = Connect();
  constexpr size_t kWaits = 1100;
  for (size_t i = 0; i < kWaits; ++i) client->Send(Wait("k"));
  client->Send(Get("k"));
  AwaitParkedCalls(1024);
  other->Send(Set("k", "v"));
  // The answer to the Get may overtake others: no client has more than one request at a time.
  EXPECT_EQ(client->Read(kWaits + 9).size(), kWaits + 9);
  EXPECT_EQ(client->Ask(Get("k"), 9), TextBytes("v"));
}

TEST_F(TcpStoreServerTest, AClientThatGoesLeavesNoWait) {
  const auto other = Connect();
  {
    const auto client = Connect();
    client->Send(Wait("never"));
    AwaitParkedCalls(1);
  }
  AwaitParkedCalls(0);
  EXPECT_EQ(KeysSeenBy(*other), 0u);
}

TEST_F(TcpStoreServerTest, ManyRequestsWithoutReadingTheirAnswers) {
  const auto client = Connect();
  const std::string value(60000, 'v');
  client->Send(Set("k", value));
  // More answers than the sockets take: the coordinator stops to read.
  constexpr int kCount = 1000;
  std::thread sender([&] {
    for (int i = 0; i < kCount; ++i) client->Send(Get("k"));
  });
  const std::string answer = TextBytes(value);
  int read = 0;
  while (read < kCount && client->Read(answer.size()) == answer) ++read;
  EXPECT_EQ(read, kCount);
  sender.join();
}

TEST_F(TcpStoreServerTest, RequestsThatArriveByteByByte) {
  const auto client = Connect();
  for (const char byte : Set("key", "value") + Get("key")) {
    client->Send(absl::string_view(&byte, 1));
  }
  EXPECT_EQ(client->Read(13), TextBytes("value"));
}

class PartialRequestsTest : public TcpStoreServerTest {
 protected:
  void SetUp() override {
    server_options_.listener.max_incoming_bytes = kLimit;
    TcpStoreServerTest::SetUp();
  }

  static constexpr int64_t kLimit = int64_t{64} << 20;
};

TEST_F(PartialRequestsTest, ThoseOfManyClientsHaveALimit) {
  const auto other = Connect();
  other->Send(Set("k", "v"));
  // 3.9 MiB of a request that would have 4 MiB.
  std::string request = RequestBytes(kWait, {NumberBytes(512)});
  while (request.size() < 3900 << 10) request += TextBytes(std::string(8000, 'k'));
  std::vector<std::unique_ptr<TestClient>> clients;
  int64_t most = 0;
  for (int i = 0; i < 400; ++i) {
    clients.push_back(Connect());
    clients.back()->Send(request);
    most = std::max(most, engine_->shared_account()->held(MemoryKind::kRequests));
    if (i % 20 == 0) {
      ASSERT_EQ(other->Ask(Get("k"), 9), TextBytes("v")) << i;
    }
  }
  EXPECT_TRUE(clients.back()->Closed());
  EXPECT_FALSE(Connect()->Ask(RequestBytes(kNumKeys, {}), 8).empty());
  // One address may have three quarters. The buffers of two requests may be above that.
  EXPECT_GT(most, kLimit / 2);
  EXPECT_LE(most, kLimit);
}

TEST_F(TcpStoreServerTest, AListThatIsTooLargeIsRefused) {
  const auto client = Connect();
  constexpr size_t kKeys = 60000;
  constexpr int kTimes = 6;  // more than 32 MiB of keys and their places together
  for (int i = 0; i < kTimes; ++i) {
    std::string keys = NumberBytes(kKeys);
    for (size_t n = 0; n < kKeys; ++n) keys += TextBytes(absl::StrCat(i, "/", n)) + TextBytes("");
    client->Send(RequestBytes(kMultiSet, {keys}));
  }
  ASSERT_EQ(KeysSeenBy(*client), kKeys * kTimes);
  client->Send(RequestBytes(kListKeys, {}));
  EXPECT_TRUE(client->Closed());
}

// The coordinator makes no further large answer before one is read.
TEST_F(TcpStoreServerTest, LargeAnswersAreMadeOneAfterTheOther) {
  const auto client = Connect();
  constexpr size_t kKeys = 3000;
  std::string set = NumberBytes(kKeys), all = NumberBytes(kKeys);
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string key = TextBytes(absl::StrCat(std::string(1000, 'k'), 10000 + i));
    set += key + TextBytes("");
    all += key;
  }
  client->Send(RequestBytes(kMultiSet, {set}));
  constexpr int kTimes = 50;
  for (int i = 0; i < kTimes; ++i) client->Send(RequestBytes(kListKeys, {}));
  const int64_t most = (int64_t{8} << 20) + 2 * static_cast<int64_t>(all.size());
  for (int i = 0; i < kTimes; ++i) {
    EXPECT_LT(engine_->shared_account()->held(MemoryKind::kOutput), most);
    ASSERT_EQ(client->Read(all.size()), all) << i;
  }
}

TEST_F(TcpStoreServerTest, AllKeysAreListedAtOnce) {
  const auto client = Connect();
  std::string keys = NumberBytes(3000);
  for (int i = 0; i < 3000; ++i) {
    const std::string key = absl::StrCat("key", 1000 + i);
    client->Send(Set(key, "v"));
    keys += TextBytes(key);
  }
  EXPECT_EQ(client->Ask(RequestBytes(kListKeys, {}), keys.size()), keys);
}

}  // namespace
}  // namespace cohort::coordinator::tcpstore
