// Members as threads, each with a connection of its own, against a real coordinator process.
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kMembers = 8;
constexpr absl::Duration kLong = absl::Seconds(30);

// Waits until `holds`, which asks the coordinator, does; each question is a round trip.
bool Eventually(const std::function<bool()>& holds) {
  const absl::Time deadline = absl::Now() + kLong;
  while (absl::Now() < deadline) {
    if (holds()) return true;
  }
  return false;
}

class RendezvousTest : public ::testing::Test {
 protected:
  RendezvousTest() : coordinator_(ProcessOptions()) {}

  void SetUp() override {
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  static cohort::testing::CoordinatorProcess::Options ProcessOptions() {
    cohort::testing::CoordinatorProcess::Options options;
    options.flags = {"--journal",      "sqlite",
                     "--journal-path", absl::StrCat(cohort::testing::NewFolder(), "/journal"),
                     "--log-level",    "warning"};
    return options;
  }

  ProcessGroupOptions Options(int rank, int world_size = kMembers) {
    ProcessGroupOptions options;
    options.connection.address = coordinator_.address();
    options.group = "g";
    options.rank = rank;
    options.world_size = world_size;
    options.store_timeout = kLong;
    // Longer than a restart of the coordinator on a busy machine.
    options.disconnect_grace = absl::Seconds(10);
    return options;
  }

  // Runs `body` on a thread per member, and joins them all.
  void OnAllRanks(int world_size, const std::function<void(ProcessGroup&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < world_size; ++rank) {
      threads.emplace_back([this, rank, world_size, &body] {
        auto group = ProcessGroup::Create(Options(rank, world_size));
        ASSERT_TRUE(group.ok()) << "rank " << rank << ": " << group.status();
        body(**group);
        // Nobody goes while others still talk to it.
        const absl::Status end = (*group)->Barrier({"end"});
        EXPECT_TRUE(end.ok() || absl::IsAborted(end)) << "rank " << rank << ": " << end;
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  std::shared_ptr<Connection> Connect() {
    ConnectionOptions options;
    options.address = coordinator_.address();
    return *Connection::Create(options);
  }

  cohort::testing::CoordinatorProcess coordinator_;
};

TEST_F(RendezvousTest, MembersMeetAndTalk) {
  OnAllRanks(kMembers, [](ProcessGroup& group) {
    const int rank = group.rank();
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(group.Barrier().ok());

    auto gathered = group.AllGather(absl::StrCat("from ", rank));
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    for (int i = 0; i < kMembers; ++i) EXPECT_EQ((*gathered)[i], absl::StrCat("from ", i));

    for (int root = 0; root < kMembers; ++root) {
      auto told = group.Broadcast(rank == root ? absl::StrCat("root ", root) : "", root);
      ASSERT_TRUE(told.ok()) << told.status();
      EXPECT_EQ(*told, absl::StrCat("root ", root));
    }

    auto collected = group.Gather(absl::StrCat(rank), 3);
    ASSERT_TRUE(collected.ok()) << collected.status();
    EXPECT_EQ(collected->size(), rank == 3 ? kMembers : 0);

    std::vector<std::string> parts;
    if (rank == 5) {
      for (int i = 0; i < kMembers; ++i) parts.push_back(absl::StrCat("part ", i));
    }
    auto part = group.Scatter(parts, 5);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(*part, absl::StrCat("part ", rank));

    auto sum = group.Vote(rank, VoteOp::kSum);
    ASSERT_TRUE(sum.ok()) << sum.status();
    EXPECT_EQ(sum->value, kMembers * (kMembers - 1) / 2);
    auto equal = group.Vote(rank == 2 ? 1 : 0, VoteOp::kEqual);
    ASSERT_TRUE(equal.ok()) << equal.status();
    EXPECT_EQ(equal->value, 0);
    EXPECT_THAT(equal->dissenting, ElementsAre(RankRange{2, 2}));

    auto alive = group.AgreeAlive();
    ASSERT_TRUE(alive.ok()) << alive.status();
    EXPECT_THAT(*alive, ElementsAre(RankRange{0, kMembers - 1}));
  });
}

TEST_F(RendezvousTest, TwoSendersToOneReceiverLoseNothing) {
  constexpr int kObjects = 50;
  OnAllRanks(3, [](ProcessGroup& group) {
    if (group.rank() > 0) {
      for (int i = 0; i < kObjects; ++i) {
        EXPECT_TRUE(group.Send(absl::StrCat(group.rank(), ":", i), 0).ok());
      }
      return;
    }
    std::vector<int> next(3, 0);
    for (int i = 0; i < kObjects; ++i) {
      for (int source = 1; source <= 2; ++source) {
        if (i % 2 == 0) {
          auto object = group.Receive(source);
          ASSERT_TRUE(object.ok()) << object.status();
          EXPECT_EQ(*object, absl::StrCat(source, ":", next[source]++));
        } else {
          auto object = group.ReceiveAny();
          ASSERT_TRUE(object.ok()) << object.status();
          EXPECT_EQ(object->bytes, absl::StrCat(object->source, ":", next[object->source]++));
        }
        // Both senders have as many left as the loop still asks of them.
        if (next[1] == kObjects && next[2] == kObjects) break;
      }
      if (next[1] == kObjects || next[2] == kObjects) break;
    }
    for (int source = 1; source <= 2; ++source) {
      while (next[source] < kObjects) {
        auto object = group.Receive(source);
        ASSERT_TRUE(object.ok()) << object.status();
        EXPECT_EQ(*object, absl::StrCat(source, ":", next[source]++));
      }
    }
  });
}

TEST_F(RendezvousTest, LargeValuesArriveWhole) {
  OnAllRanks(3, [](ProcessGroup& group) {
    const int rank = group.rank();
    auto value = [](int seed) {
      return std::string((2 << 20) + seed, static_cast<char>('a' + seed));
    };
    auto gathered = group.AllGather(value(rank));
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE((*gathered)[i] == value(i));

    auto told = group.Broadcast(rank == 1 ? value(7) : "", 1);
    ASSERT_TRUE(told.ok()) << told.status();
    EXPECT_TRUE(*told == value(7));

    std::vector<std::string> parts;
    if (rank == 0) parts = {"small", value(1), value(2)};
    auto part = group.Scatter(parts, 0);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_TRUE(*part == (rank == 0 ? "small" : value(rank)));

    EXPECT_TRUE(group.Send(value(rank), (rank + 1) % 3).ok());
    auto object = group.Receive((rank + 2) % 3);
    ASSERT_TRUE(object.ok()) << object.status();
    EXPECT_TRUE(*object == value((rank + 2) % 3));
  });
}

TEST_F(RendezvousTest, ABarrierOutlivesTheCoordinator) {
  std::atomic<int> waiting{0};
  absl::Notification restarted;
  std::thread restarter([&] {
    auto admin = AdminClient::Create(Connect());
    EXPECT_TRUE(Eventually([&] {
      const auto report = admin->WhoIsMissing("g");
      if (!report.ok()) return false;
      for (const OpenWait& wait : report->waits) {
        if (wait.operation == "barrier \"step\" #2" && wait.missing.arrived_count == kMembers - 1) {
          return true;
        }
      }
      return false;
    }));
    coordinator_.Kill();
    const absl::Status started = coordinator_.Start();
    EXPECT_TRUE(started.ok()) << started;
    restarted.Notify();
  });
  OnAllRanks(kMembers, [&](ProcessGroup& group) {
    RoundOptions step;
    step.name = "step";
    EXPECT_TRUE(group.Barrier(step).ok());
    EXPECT_TRUE(group.rank() != 1 || group.Send("kept", 2).ok());
    const int64_t generation = group.generation();
    if (group.rank() == 0) restarted.WaitForNotification();
    const absl::Status status = group.Barrier(step);
    EXPECT_TRUE(status.ok()) << "rank " << group.rank() << ": " << status;
    EXPECT_EQ(group.generation(), generation);
    if (group.rank() == 2) {
      const auto object = group.Receive(1);
      ASSERT_TRUE(object.ok()) << object.status();
      EXPECT_EQ(*object, "kept");
    }
    EXPECT_TRUE(group.Barrier(step).ok());
  });
  restarter.join();
}

TEST_F(RendezvousTest, NamesTheMissing) {
  std::vector<MissingReport> waited;
  ProcessGroupOptions options = Options(0, 3);
  options.store_timeout = absl::Milliseconds(1500);
  options.on_waiting = [&](const MissingReport& report) { waited.push_back(report); };
  const absl::Status status = ProcessGroup::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 of 3 missing: ranks 1-2"));
  ASSERT_FALSE(waited.empty());
  EXPECT_THAT(waited[0].missing, ElementsAre(RankRange{1, 2}));
}

TEST_F(RendezvousTest, ALossAbortsAllAndTheyRejoin) {
  std::atomic<int> rejoined{0};
  OnAllRanks(3, [&](ProcessGroup& group) {
    const int64_t generation = group.generation();
    if (group.rank() == 1) {
      EXPECT_TRUE(group.ReportError("disk on fire", true).ok());
    } else {
      const absl::Status status = group.Barrier();
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_EQ(GetErrorInfo(status).cause.kind, CauseKind::kReported) << status;
      EXPECT_EQ(GetErrorInfo(status).cause.member, "rank-1");
    }
    auto alive = group.AgreeAlive();
    ASSERT_TRUE(alive.ok()) << alive.status();
    EXPECT_THAT(*alive, ElementsAre(RankRange{0, 2}));
    const absl::Status again = group.Rejoin();
    ASSERT_TRUE(again.ok()) << again;
    EXPECT_GT(group.generation(), generation);
    EXPECT_TRUE(group.Barrier().ok());
    ++rejoined;
  });
  EXPECT_EQ(rejoined, 3);
}

TEST_F(RendezvousTest, AViewWithoutOneMember) {
  struct Seat {
    std::unique_ptr<ProcessGroup> group;
    absl::Notification proposed;
    int64_t proposal = 0;
  };
  std::vector<Seat> seats(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Seat& seat = seats[rank];
      ProcessGroupOptions options = Options(rank, 3);
      options.on_event = [&seat](const GroupEvent& event) {
        if (event.kind != EventKind::kViewProposed || !event.proposal.has_value()) return;
        seat.proposal = event.proposal->id;
        seat.proposed.Notify();
      };
      auto group = ProcessGroup::Create(options);
      ASSERT_TRUE(group.ok()) << group.status();
      seat.group = *std::move(group);
      ASSERT_TRUE(seat.group->Barrier().ok());
      if (rank == 1) return;
      absl::StatusOr<ViewResult> view;
      if (rank == 0) {
        view = seat.group->ProposeView({{1, 1}}, {});
      } else {
        ASSERT_TRUE(seat.proposed.WaitForNotificationWithTimeout(kLong));
        view = seat.group->AckView(seat.proposal, true);
      }
      ASSERT_TRUE(view.ok()) << view.status();
      EXPECT_EQ(seat.group->world_size(), 2);
      EXPECT_EQ(seat.group->rank(), rank == 0 ? 0 : 1);
      EXPECT_EQ(seat.group->generation(), view->generation);
      const absl::Status after = seat.group->Barrier();
      EXPECT_TRUE(after.ok()) << after;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(absl::IsAborted(seats[1].group->Barrier()));
}

TEST_F(RendezvousTest, NothingStaysBehind) {
  auto admin = AdminClient::Create(Connect());
  OnAllRanks(4, [&](ProcessGroup& group) {
    for (int i = 0; i < 10; ++i) EXPECT_TRUE(group.AllGather(std::string(1000, 'x')).ok());
    EXPECT_TRUE(group.Send("x", (group.rank() + 1) % 4).ok());
    EXPECT_TRUE(group.Receive((group.rank() + 3) % 4).ok());
    EXPECT_TRUE(Eventually([&] {
      const auto stats = group.Stats();
      return stats.ok() && stats->bytes_held == 0 && stats->unacknowledged_count == 0;
    }));
  });
}

TEST_F(RendezvousTest, UniqueIdsReachAll) {
  OnAllRanks(4, [](ProcessGroup& group) {
    if (group.rank() == 0) {
      EXPECT_TRUE(group.PublishUniqueIds("nccl", {"id-0", "id-1"}).ok());
    }
    // The publisher has them: the others' acknowledgements free them.
    if (group.rank() != 0) {
      auto ids = group.FetchUniqueIds("nccl");
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_THAT(*ids, ElementsAre("id-0", "id-1"));
    }
    EXPECT_TRUE(group.ReportInit("nccl", ProcessGroup::InitPhase::kDone, "").ok());
  });
}

TEST_F(RendezvousTest, StoreKeepsCountsQueuesAndWatches) {
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

TEST_F(RendezvousTest, PeopleSeeGroups) {
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
  EXPECT_EQ(admin->GetGroup("nobody").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace cohort::client
