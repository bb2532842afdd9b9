// A member's process is killed or stopped in the middle of a round: the others learn which member
// it was, and go on.
#include <signal.h>

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using client::CauseKind;
using client::EventKind;
using client::ProcessGroup;
using client::ProcessGroupOptions;
using testing::Answers;
using testing::BarrierAnswer;
using testing::BarrierSlot;
using testing::ChildProcess;
using testing::Connect;
using testing::CoordinatorProcess;
using testing::Events;
using ::testing::HasSubstr;
using testing::kTimeout;
using ::testing::StartsWith;

constexpr int kWorldSize = 4;
constexpr int kVictim = 3;
constexpr absl::Duration kLease = absl::Seconds(2);

class MemberKilledTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(coordinator_.Start().ok()); }

  std::unique_ptr<ChildProcess> StartVictim(bool share_fate = true) {
    std::vector<std::string> command = {"tests/failure/testing/member_main",
                                        coordinator_.address(),
                                        "group",
                                        absl::StrCat(kVictim),
                                        absl::StrCat(kWorldSize),
                                        "member=victim",
                                        "lease_ms=2000",
                                        "attached_ms=2000"};
    if (!share_fate) command.push_back("fate=report");
    return std::make_unique<ChildProcess>(std::move(command));
  }

  // Joins ranks 0..2 here, and rank 3 in a process of its own.
  void Join(bool share_fate = true) {
    victim_ = StartVictim(share_fate);
    Answers<std::shared_ptr<std::unique_ptr<ProcessGroup>>> joined(kVictim);
    for (int rank = 0; rank < kVictim; ++rank) {
      ProcessGroupOptions options =
          testing::MemberOptions(Connect(coordinator_.address()), "group", rank, kWorldSize);
      options.lease = kLease;
      options.attached_lease = kLease;
      options.share_fate = share_fate;
      options.on_event = events_[rank].Slot();
      ProcessGroup::CreateAsync(options, [slot = joined.Slot(rank)](
                                             absl::StatusOr<std::unique_ptr<ProcessGroup>> member) {
        ASSERT_TRUE(member.ok()) << member.status();
        slot(std::make_shared<std::unique_ptr<ProcessGroup>>(*std::move(member)));
      });
    }
    ASSERT_TRUE(joined.AwaitAll());
    for (int rank = 0; rank < kVictim; ++rank) survivors_.push_back(std::move(*joined[rank]));
    const absl::StatusOr<std::string> line = victim_->ReadLine(kTimeout);
    ASSERT_TRUE(line.ok()) << line.status();
    ASSERT_EQ(*line, "joined 3 4 1");
    // Until the victim's event stream is open, only its lease reveals that it died.
    victim_->WriteLine("await_event");
    ASSERT_TRUE(survivors_[0]->ReportError("hello", /*fatal=*/false).ok());
    ASSERT_EQ(victim_->ReadLine(kTimeout).value_or("nothing"), "OK ");
  }

  // Checks the error that a survivor gets when the victim has ended the generation.
  void ExpectVictimNamed(const absl::Status& status, CauseKind kind) {
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("victim"));
    const client::ErrorInfo info = client::GetErrorInfo(status);
    EXPECT_EQ(info.cause.kind, kind) << client::CauseKindName(info.cause.kind);
    EXPECT_EQ(info.cause.member, "victim");
    ASSERT_TRUE(info.cause.rank.has_value());
    EXPECT_EQ(*info.cause.rank, kVictim);
  }

  client::RoundOptions LongRound() {
    client::RoundOptions options;
    options.name = "step";
    options.timeout = kTimeout;
    return options;
  }

  // All three survivors wait in a barrier for the victim.
  void ParkSurvivors(Answers<BarrierAnswer>& answers) {
    for (int rank = 0; rank < kVictim; ++rank) {
      survivors_[rank]->async().Barrier(LongRound(), BarrierSlot(answers, rank));
    }
    ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", kVictim));
  }

  // Kills the victim, and expects that all survivors see the generation end.
  void KillVictimInBarrier() {
    Answers<BarrierAnswer> answers(kVictim);
    ParkSurvivors(answers);
    const Instant killed = Clock::Steady().Now();
    victim_->Kill();
    ASSERT_TRUE(answers.AwaitAll());
    std::cout << "kill -9 to the last answer: " << Clock::Steady().Now() - killed << std::endl;
    EXPECT_LT(Clock::Steady().Now() - killed, absl::Seconds(2));
    for (int rank = 0; rank < kVictim; ++rank) {
      ExpectVictimNamed(answers[rank].status, CauseKind::kConnectionLost);
    }
  }

  void ExpectBarrierOf(const std::vector<ProcessGroup*>& members) {
    Answers<BarrierAnswer> answers(members.size());
    for (size_t index = 0; index < members.size(); ++index) {
      members[index]->async().Barrier(LongRound(), BarrierSlot(answers, index));
    }
    ASSERT_TRUE(answers.AwaitAll());
    for (size_t index = 0; index < members.size(); ++index) {
      EXPECT_TRUE(answers[index].status.ok()) << answers[index].status;
    }
  }

  // Rank 0 proposes a view without the victim; the others accept the proposal.
  void Shrink() {
    testing::OnThreads(kVictim, [&](int rank) {
      const absl::StatusOr<std::vector<RankRange>> alive = survivors_[rank]->AgreeAlive();
      ASSERT_TRUE(alive.ok()) << alive.status();
      EXPECT_EQ(*alive, (std::vector<RankRange>{{0, 2}}));
    });
    testing::OnThreads(kVictim, [&](int rank) {
      absl::StatusOr<client::ViewResult> view = absl::UnknownError("never asked");
      if (rank == 0) {
        view = survivors_[0]->ProposeView({{kVictim, kVictim}}, {});
      } else {
        const std::optional<client::GroupEvent> event =
            events_[rank].Await(EventKind::kViewProposed);
        ASSERT_TRUE(event.has_value() && event->proposal.has_value()) << "rank " << rank;
        EXPECT_EQ(event->proposal->remove, (std::vector<RankRange>{{kVictim, kVictim}}));
        view = survivors_[rank]->AckView(event->proposal->id, true);
      }
      ASSERT_TRUE(view.ok()) << "rank " << rank << ": " << view.status();
      EXPECT_EQ(view->generation, 2);
      EXPECT_EQ(view->rank, rank);
      EXPECT_EQ(view->world_size, kVictim);
      EXPECT_EQ(survivors_[rank]->world_size(), kVictim);
    });
    if (HasFailure()) return;
    ExpectBarrierOf({survivors_[0].get(), survivors_[1].get(), survivors_[2].get()});
  }

  CoordinatorProcess coordinator_{{}};
  std::unique_ptr<ChildProcess> victim_;
  Events events_[kVictim];
  std::vector<std::unique_ptr<ProcessGroup>> survivors_;
};

TEST_F(MemberKilledTest, KilledWhileOthersWaitInABarrierIsNamedToAll) {
  ASSERT_NO_FATAL_FAILURE(Join());
  KillVictimInBarrier();
  for (int rank = 0; rank < kVictim; ++rank) {
    const std::optional<client::GroupEvent> lost = events_[rank].Await(EventKind::kLost);
    ASSERT_TRUE(lost.has_value());
    EXPECT_EQ(lost->member, "victim");
    EXPECT_EQ(lost->rank, kVictim);
  }
}

TEST_F(MemberKilledTest, KilledInsideAnAllGatherIsNamedToAll) {
  ASSERT_NO_FATAL_FAILURE(Join());
  victim_->WriteLine("all_gather mine");
  Answers<absl::StatusOr<client::ObjectList>> answers(2);
  for (int rank = 0; rank < 2; ++rank) {
    survivors_[rank]->async().AllGather("mine", {}, answers.Slot(rank));
  }
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 3));
  victim_->Kill();
  ASSERT_TRUE(answers.AwaitAll());
  for (int rank = 0; rank < 2; ++rank) {
    ExpectVictimNamed(answers[rank].status(), CauseKind::kConnectionLost);
  }
  // A rank that calls later neither waits for the dead rank nor gets a result without it.
  ExpectVictimNamed(survivors_[2]->AllGather("mine").status(), CauseKind::kConnectionLost);
}

TEST_F(MemberKilledTest, StoppedWithItsConnectionOpenIsFoundByItsLease) {
  ASSERT_NO_FATAL_FAILURE(Join());
  Answers<BarrierAnswer> answers(kVictim);
  ParkSurvivors(answers);
  const Instant stopped = Clock::Steady().Now();
  victim_->Signal(SIGSTOP);
  ASSERT_TRUE(answers.AwaitAll());
  const absl::Duration took = Clock::Steady().Now() - stopped;
  std::cout << "SIGSTOP to the last answer: " << took << " with a lease of " << kLease << std::endl;
  EXPECT_LE(took, kLease + absl::Seconds(1));
  for (int rank = 0; rank < kVictim; ++rank) {
    ExpectVictimNamed(answers[rank].status, CauseKind::kLeaseExpired);
  }

  // The victim wakes up after the others went on: it is fenced, gets an error, and changes nothing.
  victim_->WriteLine("send 0 1 10");
  victim_->Signal(SIGCONT);
  const absl::StatusOr<std::string> line = victim_->ReadLine(kTimeout);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_THAT(*line, StartsWith("ABORTED"));
}

TEST_F(MemberKilledTest, SurvivorsAndAReplacementGoOnInTheNextGeneration) {
  ASSERT_NO_FATAL_FAILURE(Join());
  KillVictimInBarrier();
  victim_ = StartVictim();
  testing::OnThreads(kVictim, [&](int rank) {
    const absl::Status status = survivors_[rank]->Rejoin();
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(survivors_[rank]->rank(), rank);
    EXPECT_EQ(survivors_[rank]->generation(), 2);
  });
  const absl::StatusOr<std::string> line = victim_->ReadLine(kTimeout);
  ASSERT_TRUE(line.ok()) << line.status();
  EXPECT_EQ(*line, "joined 3 4 2");

  victim_->WriteLine("all_gather d");
  Answers<absl::StatusOr<client::ObjectList>> answers(kVictim);
  for (int rank = 0; rank < kVictim; ++rank) {
    survivors_[rank]->async().AllGather(std::string(1, 'a' + rank), {}, answers.Slot(rank));
  }
  ASSERT_TRUE(answers.AwaitAll());
  for (int rank = 0; rank < kVictim; ++rank) {
    ASSERT_TRUE(answers[rank].ok()) << answers[rank].status();
    EXPECT_EQ(answers[rank]->ToStrings(), (std::vector<std::string>{"a", "b", "c", "d"}));
  }
}

TEST_F(MemberKilledTest, SurvivorsShrinkABrokenGroup) {
  ASSERT_NO_FATAL_FAILURE(Join());
  KillVictimInBarrier();
  Shrink();
}

TEST_F(MemberKilledTest, SurvivorsShrinkAGroupThatDoesNotShareFate) {
  ASSERT_NO_FATAL_FAILURE(Join(/*share_fate=*/false));
  victim_->Kill();
  for (int rank = 0; rank < kVictim; ++rank) {
    ASSERT_TRUE(events_[rank].Await(EventKind::kLost).has_value());
  }
  Shrink();
}

TEST_F(MemberKilledTest, WaitsWithoutTheDeadGoOnWhenFateIsNotShared) {
  ASSERT_NO_FATAL_FAILURE(Join(/*share_fate=*/false));
  client::RoundOptions two = LongRound();
  two.name = "two";
  two.participants = {{0, 1}};
  Answers<BarrierAnswer> unaffected(2);
  survivors_[0]->async().Barrier(two, BarrierSlot(unaffected, 0));
  Answers<BarrierAnswer> affected(1);
  survivors_[2]->async().Barrier(LongRound(), BarrierSlot(affected, 0));
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 2));
  victim_->Kill();
  ASSERT_TRUE(affected.AwaitAll());
  ExpectVictimNamed(affected[0].status, CauseKind::kConnectionLost);
  EXPECT_EQ(unaffected.arrived(), 0);
  survivors_[1]->async().Barrier(two, BarrierSlot(unaffected, 1));
  ASSERT_TRUE(unaffected.AwaitAll());
  EXPECT_TRUE(unaffected[0].status.ok()) << unaffected[0].status;
  EXPECT_TRUE(unaffected[1].status.ok()) << unaffected[1].status;
}

}  // namespace
}  // namespace cohort
