// The other clients: the store, and the administration of groups.
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"

namespace cohort::client {
namespace {

using ClientsTest = RendezvousTestBase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The TCP connections of this process to the port.
int ConnectionsTo(const std::string& address) {
  const int port = std::stoi(address.substr(address.rfind(':') + 1));
  int count = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in peer = {};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) continue;
    count += peer.sin_family == AF_INET && ntohs(peer.sin_port) == port ? 1 : 0;
  }
  return count;
}

TEST_F(ClientsTest, AMemberNeedsOneConnection) {
  constexpr int kFew = 3;
  std::atomic<int> connections{0};
  OnAllRanks(kFew, [&](ProcessGroup& group) {
    EXPECT_TRUE(group.Barrier({"all"}).ok());
    if (group.rank() == 0) {
      EXPECT_TRUE(group.Send("object", 1).ok());
      connections = ConnectionsTo(coordinator_.address());
    }
    if (group.rank() == 1) {
      EXPECT_TRUE(group.Receive(0).ok());
    }
    EXPECT_TRUE(group.Barrier({"counted"}).ok());
  });
  EXPECT_EQ(connections, kFew);
}

// The next call says that the item has come.
TEST(StoreQueueTest, APoppedItemMakesRoomForTheNext) {
  cohort::testing::CoordinatorProcess::Options flags;
  flags.flags = {"--limit", "max_queue_depth=1"};
  cohort::testing::CoordinatorProcess coordinator(flags);
  ASSERT_TRUE(coordinator.Start().ok());
  ConnectionOptions options;
  options.address = coordinator.address();
  const auto store = StoreClient::Create(*Connection::Create(options), "");
  for (int i = 0; i < 3; ++i) {
    const auto pushed = store->QueuePush("q", "x", {}, kLong);
    ASSERT_TRUE(pushed.ok()) << pushed.status();
    const auto popped = store->QueuePop("q", kLong);
    ASSERT_TRUE(popped.ok() && popped->has_value()) << popped.status();
  }
}

TEST_F(ClientsTest, StoreKeepsCountsQueuesAndWatches) {
  auto store = StoreClient::Create(Connect(), "");
  auto put = store->Put("a/1", "one");
  ASSERT_TRUE(put.ok()) << put.status();
  EXPECT_TRUE(put->written);
  PutOptions only_if_absent;
  only_if_absent.expected_revision = 0;
  auto refused = store->Put("a/1", "two", only_if_absent);
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_FALSE(refused->written);
  ASSERT_TRUE(refused->current.has_value());
  EXPECT_EQ(refused->current->value, "one");

  EXPECT_EQ(store->Add("n", 5).value(), 5);
  EXPECT_EQ(store->Add("n", -2).value(), 3);
  EXPECT_EQ(store->Append("log", "ab").value(), 2);
  auto range = store->Range("a/");
  ASSERT_TRUE(range.ok()) << range.status();
  ASSERT_EQ(range->values.size(), 1u);
  auto nothing = store->Get({"late"}, absl::Milliseconds(50));
  ASSERT_TRUE(nothing.ok()) << nothing.status();
  EXPECT_THAT(nothing->missing_keys, ElementsAre("late"));

  std::thread writer([&] { EXPECT_TRUE(store->Put("late", "now").ok()); });
  auto late = store->Get({"late"}, kLong);
  writer.join();
  ASSERT_TRUE(late.ok()) << late.status();
  ASSERT_EQ(late->values.size(), 1u);
  EXPECT_EQ(late->values[0].value, "now");

  EXPECT_TRUE(store->QueuePush("q", "x").ok());
  auto popped = store->QueuePop("q", kLong);
  ASSERT_TRUE(popped.ok()) << popped.status();
  ASSERT_TRUE(popped->has_value());
  EXPECT_EQ((*popped)->value, "x");
  auto empty = store->QueuePop("q", absl::ZeroDuration());
  ASSERT_TRUE(empty.ok()) << empty.status();
  EXPECT_FALSE(empty->has_value());

  std::vector<std::string> changed;
  const absl::Status watched = store->Watch(
      "a/", put->revision - 1,
      [&](const KeyEvent& event) {
        changed.push_back(absl::StrCat(event.key_value.key, event.deleted ? " deleted" : ""));
        if (changed.size() == 1) {
          EXPECT_EQ(store->Delete("a/", true).value(), 1);
        }
        return changed.size() < 2;
      },
      kLong);
  EXPECT_TRUE(watched.ok()) << watched;
  EXPECT_THAT(changed, ElementsAre("a/1", "a/1 deleted"));
}

TEST_F(ClientsTest, ToolsListGroups) {
  auto admin = AdminClient::Create(Connect());
  auto stats = admin->Stats();
  ASSERT_TRUE(stats.ok()) << stats.status();
  EXPECT_EQ(stats->group_count, 0);
  OnAllRanks(2, [&](ProcessGroup& group) {
    if (group.rank() == 1) return;
    auto groups = admin->ListGroups();
    ASSERT_TRUE(groups.ok()) << groups.status();
    ASSERT_EQ(groups->size(), 1u);
    EXPECT_EQ((*groups)[0].name, "g");
    auto info = admin->GetGroup("g");
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_EQ(info->state, GroupState::kActive);
    EXPECT_EQ(info->members.size(), 2u);
    auto described = group.Describe();
    ASSERT_TRUE(described.ok()) << described.status();
    EXPECT_EQ(described->revision, info->revision);
    EXPECT_TRUE(admin->DumpWaits("").ok());
    auto limits = admin->Limits({});
    ASSERT_TRUE(limits.ok()) << limits.status();
    EXPECT_GT(limits->size(), 0u);
    std::vector<EventKind> kinds;
    EXPECT_TRUE(admin
                    ->WatchGroup(
                        "g", 1,
                        [&](const GroupEvent& event) {
                          kinds.push_back(event.kind);
                          return event.kind != EventKind::kActive;
                        },
                        kLong)
                    .ok());
    EXPECT_EQ(kinds.back(), EventKind::kActive);
  });
  EXPECT_EQ(admin->GetGroup("no-such-group").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cohort::client
