// Groups: members join, communicate, lose one another and join again.
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
#include "client/rendezvous/process_group/process_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"

namespace cohort::client {
namespace {

using RendezvousTest = RendezvousTestBase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(RendezvousTest, MembersJoinAndTalk) {
  OnAllRanks(kMembers, [](ProcessGroup& group) {
    const int rank = group.rank();
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(group.Barrier().ok());

    auto gathered = group.AllGather(absl::StrCat("from ", rank));
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    for (int i = 0; i < kMembers; ++i) EXPECT_EQ((*gathered)[i], absl::StrCat("from ", i));

    for (int root = 0; root < kMembers; ++root) {
      auto received = group.Broadcast(rank == root ? absl::StrCat("root ", root) : "", root);
      ASSERT_TRUE(received.ok()) << received.status();
      EXPECT_EQ(*received, absl::StrCat("root ", root));
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
        // All objects have come.
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
      return std::string((4 << 20) + seed, static_cast<char>('a' + seed));
    };
    auto gathered = group.AllGather(value(rank));
    ASSERT_TRUE(gathered.ok()) << gathered.status();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE((*gathered)[i] == value(i));

    auto received = group.Broadcast(rank == 1 ? value(7) : "", 1);
    ASSERT_TRUE(received.ok()) << received.status();
    EXPECT_TRUE(*received == value(7));

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
  options.join_timeout = absl::Milliseconds(1500);
  options.on_waiting = [&](const MissingReport& report) { waited.push_back(report); };
  const absl::Status status = ProcessGroup::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("2 of 3 missing: ranks 1-2"));
  ASSERT_FALSE(waited.empty());
  EXPECT_THAT(waited[0].missing, ElementsAre(RankRange{1, 2}));
}

// The others gave up on a round and are in a later one. A late member gets an error, or joins the
// later round in the same call.
TEST_F(RendezvousTest, ALateMemberLearnsTheOutcomeAndCatchesUp) {
  std::vector<std::unique_ptr<ProcessGroup>> groups(2);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto group = ProcessGroup::Create(Options(rank, 2));
      ASSERT_TRUE(group.ok()) << group.status();
      groups[rank] = *std::move(group);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_NE(groups[0], nullptr);
  ASSERT_NE(groups[1], nullptr);
  RoundOptions step;
  step.name = "step";
  RoundOptions brief = step;
  brief.timeout = absl::Milliseconds(100);

  EXPECT_TRUE(absl::IsDeadlineExceeded(groups[0]->Barrier(brief)));
  RoundReport report;
  const absl::Status late = groups[1]->Barrier(step, &report);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_THAT(std::string(late.message()),
              ::testing::AllOf(::testing::HasSubstr("barrier \"step\" #1"),
                               ::testing::HasSubstr("before rank 1 came"),
                               ::testing::HasSubstr("1 of 2 missing: rank 1"),
                               ::testing::HasSubstr("takes part in #2")));
  EXPECT_EQ(report.missed_number, 1);

  for (int i = 0; i < 2; ++i) EXPECT_TRUE(absl::IsDeadlineExceeded(groups[0]->Barrier(brief)));
  std::thread ahead([&] {
    RoundReport own;
    const absl::Status status = groups[0]->Barrier(step, &own);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(own.number, 4);
    EXPECT_TRUE(absl::IsDeadlineExceeded(groups[0]->AllGather("missed", brief).status()));
    const auto values = groups[0]->AllGather("zero", step);
    EXPECT_TRUE(values.ok()) << values.status();
  });
  step.catch_up = true;
  const absl::Status caught_up = groups[1]->Barrier(step, &report);
  EXPECT_TRUE(caught_up.ok()) << caught_up;
  EXPECT_EQ(report.missed_number, 2);
  EXPECT_EQ(report.number, 4);
  // Waits until rank 0 has given up on its first all_gather and waits in the next.
  const auto admin = AdminClient::Create(Connect());
  EXPECT_TRUE(Eventually([&] {
    const auto missing = admin->WhoIsMissing("g");
    return missing.ok() && missing->waits.size() == 1 &&
           absl::StrContains(missing->waits[0].operation, "#6");
  }));
  const auto values = groups[1]->AllGather("one", step);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0], "zero");
  EXPECT_EQ((*values)[1], "one");
  ahead.join();
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
  struct Member {
    std::unique_ptr<ProcessGroup> group;
    absl::Notification proposed;
    int64_t proposal = 0;
  };
  std::vector<Member> members(3);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Member& member = members[rank];
      ProcessGroupOptions options = Options(rank, 3);
      options.on_event = [&member](const GroupEvent& event) {
        if (event.kind != EventKind::kViewProposed || !event.proposal.has_value()) return;
        member.proposal = event.proposal->id;
        member.proposed.Notify();
      };
      auto group = ProcessGroup::Create(options);
      ASSERT_TRUE(group.ok()) << group.status();
      member.group = *std::move(group);
      ASSERT_TRUE(member.group->Barrier().ok());
      if (rank == 1) return;
      absl::StatusOr<ViewResult> view;
      if (rank == 0) {
        view = member.group->ProposeView({{1, 1}}, {});
      } else {
        ASSERT_TRUE(member.proposed.WaitForNotificationWithTimeout(kLong));
        view = member.group->AckView(member.proposal, true);
      }
      ASSERT_TRUE(view.ok()) << view.status();
      EXPECT_EQ(member.group->world_size(), 2);
      EXPECT_EQ(member.group->rank(), rank == 0 ? 0 : 1);
      EXPECT_EQ(member.group->generation(), view->generation);
      const absl::Status after = member.group->Barrier();
      EXPECT_TRUE(after.ok()) << after;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(absl::IsAborted(members[1].group->Barrier()));
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
    // The publisher has the ids itself; the others' acknowledgements free them.
    if (group.rank() != 0) {
      auto ids = group.FetchUniqueIds("nccl");
      ASSERT_TRUE(ids.ok()) << ids.status();
      EXPECT_THAT(*ids, ElementsAre("id-0", "id-1"));
    }
    EXPECT_TRUE(group.ReportInit("nccl", ProcessGroup::InitPhase::kDone, "").ok());
  });
}

}  // namespace
}  // namespace cohort::client
