// The coordinator is killed with kill -9 again and again while members work, and started again on
// the same port and journal. All acknowledged data is there, rounds in progress complete, and no
// member loses its rank.
#include <algorithm>
#include <atomic>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/rendezvous/store_client.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using client::ProcessGroup;
using client::ProcessGroupOptions;
using client::StoreClient;
using testing::Answers;
using testing::BarrierAnswer;
using testing::BarrierSlot;
using testing::Connect;
using testing::CoordinatorProcess;
using testing::JoinAll;
using testing::kTimeout;
using testing::Members;

constexpr int kWorldSize = 4;
constexpr int kKillCount = 40;

CoordinatorProcess::Options OnDisk() {
  CoordinatorProcess::Options options;
  options.flags = {"--journal",   "sqlite", "--journal-path", testing::NewFolder() + "/journal",
                   "--log-level", "warning"};
  return options;
}

// Counts the operations of one run's members so far, and says when they may stop.
struct Work {
  std::atomic<int64_t> step_count = 0;
  std::atomic<bool> stop = false;
  std::atomic<int64_t> added = 0;
  std::atomic<int64_t> sent[kWorldSize] = {};
};

// Barriers and all-gathers in step. Rank 0 decides when all stop, so that no member waits for one
// that has left.
void RunRounds(ProcessGroup& group, Work& work) {
  int64_t step = 0;
  bool last = false;
  while (!last) {
    ++step;
    const absl::Status barrier = group.Barrier();
    ASSERT_TRUE(barrier.ok()) << "step " << step << ": " << barrier;
    const bool stop = work.stop;
    const std::string mine = absl::StrCat(group.rank(), ":", step, stop ? ":stop" : ":go");
    const absl::StatusOr<client::ObjectList> all = group.AllGather(mine);
    ASSERT_TRUE(all.ok()) << "step " << step << ": " << all.status();
    ASSERT_EQ(all->size(), kWorldSize);
    for (int rank = 0; rank < kWorldSize; ++rank) {
      const std::string prefix = absl::StrCat(rank, ":", step, ":");
      ASSERT_EQ((*all)[rank].substr(0, prefix.size()), prefix) << "rank " << group.rank();
    }
    last = (*all)[0] == absl::StrCat("0:", step, ":stop");
    ++work.step_count;
  }
}

std::string Object(int source, int64_t index) {
  return absl::StrCat(source, "->", (source + 1) % kWorldSize, " #", index);
}

void RunSender(ProcessGroup& group, Work& work) {
  const int rank = group.rank();
  for (int64_t index = 0; !work.stop; ++index) {
    const absl::Status status = group.Send(Object(rank, index), (rank + 1) % kWorldSize);
    ASSERT_TRUE(status.ok()) << status;
    ++work.sent[rank];
    ++work.step_count;
  }
  const absl::Status status = group.Send("end", (rank + 1) % kWorldSize);
  ASSERT_TRUE(status.ok()) << status;
}

void RunReceiver(ProcessGroup& group, Work& work) {
  const int source = (group.rank() + kWorldSize - 1) % kWorldSize;
  for (int64_t index = 0;; ++index) {
    const absl::StatusOr<std::string> object = group.Receive(source);
    ASSERT_TRUE(object.ok()) << object.status();
    if (*object == "end") {
      EXPECT_EQ(index, work.sent[source]);
      return;
    }
    ASSERT_EQ(*object, Object(source, index));
  }
}

void RunAdder(StoreClient& store, Work& work) {
  while (!work.stop) {
    const absl::StatusOr<int64_t> value = store.Add("sum", 3, kTimeout);
    ASSERT_TRUE(value.ok()) << value.status();
    work.added += 3;
    ++work.step_count;
  }
}

TEST(CoordinatorKilledTest, NothingAcknowledgedIsLostAndRoundsInProgressComplete) {
  std::mt19937_64 random(testing::TestSeed());
  CoordinatorProcess coordinator(OnDisk());
  ASSERT_TRUE(coordinator.Start().ok());
  std::vector<std::shared_ptr<client::Connection>> connections;
  for (int rank = 0; rank < kWorldSize; ++rank)
    connections.push_back(Connect(coordinator.address()));
  Members members = JoinAll(connections, "group", kWorldSize);
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  const int64_t generation = members[0]->generation();
  const std::unique_ptr<StoreClient> stores[] = {StoreClient::Create(connections[0], "group"),
                                                 StoreClient::Create(connections[1], "group")};

  Work work;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ProcessGroup& group = *members[rank];
    threads.emplace_back([&group, &work] { RunRounds(group, work); });
    threads.emplace_back([&group, &work] { RunSender(group, work); });
    threads.emplace_back([&group, &work] { RunReceiver(group, work); });
  }
  for (const auto& store : stores)
    threads.emplace_back([&store, &work] { RunAdder(*store, work); });

  absl::Duration longest;
  int64_t seen_generation = generation;
  for (int kill = 0; kill < kKillCount && !::testing::Test::HasFailure(); ++kill) {
    // Waits for a random number of finished operations, so that kills hit all kinds of moments.
    const int64_t until = work.step_count + 1 + random() % 200;
    const Instant start = Clock::Steady().Now();
    EXPECT_TRUE(testing::Eventually([&] { return work.step_count >= until; }))
        << "no progress after kill " << kill;
    longest = std::max(longest, Clock::Steady().Now() - start);
    coordinator.Kill();
    const absl::Status started = coordinator.Start();
    EXPECT_TRUE(started.ok()) << started;
    const absl::StatusOr<client::GroupInfo> info = members[kill % kWorldSize]->Describe();
    EXPECT_TRUE(info.ok()) << info.status();
    if (!info.ok()) break;
    EXPECT_GE(info->generation, seen_generation);
    seen_generation = info->generation;
  }
  work.stop = true;
  for (std::thread& thread : threads) thread.join();
  std::cout << kKillCount << " kills, " << work.step_count << " operations, longest pause "
            << longest << std::endl;

  EXPECT_EQ(seen_generation, generation);
  const absl::StatusOr<int64_t> sum = stores[0]->Add("sum", 0);
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_EQ(*sum, work.added);
  const absl::StatusOr<client::GroupInfo> info = members[0]->Describe();
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->state, client::GroupState::kActive);
  for (int rank = 0; rank < kWorldSize; ++rank) {
    EXPECT_EQ(info->members[rank].rank, rank);
    EXPECT_EQ(info->members[rank].name, members[rank]->member());
  }
  EXPECT_TRUE(testing::Eventually([&] {
    const absl::StatusOr<client::GroupStats> stats = members[0]->Stats();
    return stats.ok() && stats->object_count == 0 && stats->unacknowledged_count == 0;
  }));
}

// The coordinator is upgraded. On SIGTERM it answers parked calls, and its members notice it as
// little as a kill.
TEST(CoordinatorKilledTest, MembersDoNotNoticeARestartAfterSigterm) {
  CoordinatorProcess coordinator(OnDisk());
  ASSERT_TRUE(coordinator.Start().ok());
  std::vector<std::shared_ptr<client::Connection>> connections;
  for (int rank = 0; rank < kWorldSize; ++rank)
    connections.push_back(Connect(coordinator.address()));
  Members members = JoinAll(connections, "group", kWorldSize);
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  Work work;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorldSize; ++rank) {
    ProcessGroup& group = *members[rank];
    threads.emplace_back([&group, &work] { RunRounds(group, work); });
    threads.emplace_back([&group, &work] { RunSender(group, work); });
    threads.emplace_back([&group, &work] { RunReceiver(group, work); });
  }
  for (int restart = 0; restart < 10 && !::testing::Test::HasFailure(); ++restart) {
    const int64_t until = work.step_count + 50;
    EXPECT_TRUE(testing::Eventually([&] { return work.step_count >= until; }));
    const absl::StatusOr<int> code = coordinator.Terminate(absl::Seconds(15));
    EXPECT_EQ(code.value_or(-1), 0) << code.status();
    const absl::Status started = coordinator.Start();
    EXPECT_TRUE(started.ok()) << started;
  }
  work.stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(members[0]->generation(), 1);
}

TEST(CoordinatorKilledTest, ABarrierThatWasWaitedInCompletes) {
  CoordinatorProcess coordinator(OnDisk());
  ASSERT_TRUE(coordinator.Start().ok());
  Members members = JoinAll({Connect(coordinator.address()), Connect(coordinator.address())},
                            "group", kWorldSize);
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  client::RoundOptions options;
  options.timeout = kTimeout;
  Answers<BarrierAnswer> answers(kWorldSize);
  for (int rank = 0; rank < kWorldSize - 1; ++rank) {
    members[rank]->async().Barrier(options, BarrierSlot(answers, rank));
  }
  ASSERT_TRUE(testing::AwaitParked(coordinator.address(), "group", kWorldSize - 1));
  coordinator.Kill();
  ASSERT_TRUE(coordinator.Start().ok());
  members[kWorldSize - 1]->async().Barrier(options, BarrierSlot(answers, kWorldSize - 1));
  ASSERT_TRUE(answers.AwaitAll());
  for (int rank = 0; rank < kWorldSize; ++rank) {
    EXPECT_TRUE(answers[rank].status.ok()) << answers[rank].status;
    EXPECT_EQ(answers[rank].report.number, 1);
  }
}

// The members retry only after a backoff that is longer than the grace of a broken connection.
TEST(CoordinatorKilledTest, AMemberThatReconnectsSlowlyIsNotLost) {
  CoordinatorProcess coordinator(OnDisk());
  ASSERT_TRUE(coordinator.Start().ok());
  client::ConnectionOptions slow;
  slow.address = coordinator.address();
  slow.min_backoff = slow.max_backoff = absl::Seconds(1);
  std::vector<std::shared_ptr<client::Connection>> connections;
  for (int i = 0; i < 2; ++i) connections.push_back(*client::Connection::Create(slow));
  Members members = JoinAll(connections, "group", 2);
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  client::RoundOptions options;
  options.timeout = kTimeout;
  Answers<BarrierAnswer> answers(2);
  members[0]->async().Barrier(options, BarrierSlot(answers, 0));
  ASSERT_TRUE(testing::AwaitParked(coordinator.address(), "group", 1));
  coordinator.Kill();
  ASSERT_TRUE(coordinator.Start().ok());
  // Longer than a backoff and the grace of a broken connection together.
  EXPECT_FALSE(testing::Eventually(
      [&] {
        const auto info = members[1]->Describe();
        return info.ok() && info->state == client::GroupState::kBroken;
      },
      absl::Seconds(4)));
  members[1]->async().Barrier(options, BarrierSlot(answers, 1));
  ASSERT_TRUE(answers.AwaitAll());
  for (int rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(answers[rank].status.ok()) << answers[rank].status;
}

TEST(CoordinatorKilledTest, UnreadObjectsAndKeysSurviveTheRestart) {
  CoordinatorProcess coordinator(OnDisk());
  ASSERT_TRUE(coordinator.Start().ok());
  const std::shared_ptr<client::Connection> connection = Connect(coordinator.address());
  Members members = JoinAll({connection}, "group", 2);
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  const std::unique_ptr<StoreClient> store = StoreClient::Create(connection, "group");
  const std::string large(3 << 20, 'L');
  for (int index = 0; index < 100; ++index) {
    ASSERT_TRUE(members[0]->Send(absl::StrCat("object ", index), 1).ok());
    ASSERT_TRUE(store->QueuePush("queue", absl::StrCat("entry ", index)).ok());
  }
  ASSERT_TRUE(members[0]->Send(large, 1).ok());
  ASSERT_TRUE(members[0]->PublishUniqueIds("weights", {"secret"}).ok());
  coordinator.Kill();
  ASSERT_TRUE(coordinator.Start().ok());
  for (int index = 0; index < 100; ++index) {
    const absl::StatusOr<std::string> object = members[1]->Receive(0);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_EQ(*object, absl::StrCat("object ", index));
    const auto entry = store->QueuePop("queue", absl::Seconds(5));
    ASSERT_TRUE(entry.ok()) << entry.status();
    ASSERT_TRUE(entry->has_value());
    EXPECT_EQ((*entry)->value, absl::StrCat("entry ", index));
  }
  const absl::StatusOr<std::string> object = members[1]->Receive(0);
  ASSERT_TRUE(object.ok()) << object.status();
  EXPECT_TRUE(*object == large);
  const absl::StatusOr<std::vector<std::string>> ids = members[1]->FetchUniqueIds("weights");
  ASSERT_TRUE(ids.ok()) << ids.status();
  EXPECT_EQ(*ids, std::vector<std::string>{"secret"});
}

TEST(CoordinatorKilledTest, AMemberThatDiedMeanwhileIsFoundAfterwards) {
  CoordinatorProcess coordinator(OnDisk());
  ASSERT_TRUE(coordinator.Start().ok());
  Members members =
      JoinAll({Connect(coordinator.address()), Connect(coordinator.address())}, "group", 2,
              [](ProcessGroupOptions& options) { options.lease = absl::Seconds(2); });
  for (const auto& member : members) ASSERT_NE(member, nullptr);
  coordinator.Kill();
  // It cannot leave the group: no coordinator is running.
  members[1].reset();
  ASSERT_TRUE(coordinator.Start().ok());
  const absl::Status status = members[0]->Barrier();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(client::GetErrorInfo(status).cause.rank, 1);
}

}  // namespace
}  // namespace cohort
