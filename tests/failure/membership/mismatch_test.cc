// Members that disagree: a join fails alone, and a round fails for all members. The errors come at
// once and name both sides; the group stays usable.
#include <functional>
#include <iostream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "client/rendezvous/admin_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using client::ProcessGroup;
using client::ProcessGroupOptions;
using ::testing::AllOf;
using testing::Answers;
using testing::BarrierAnswer;
using testing::BarrierSlot;
using testing::Connect;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::JoinAll;
using testing::MemberOptions;
using testing::Members;

// Far below all timeouts of the members, far above the delays of a busy machine.
constexpr absl::Duration kAtOnce = absl::Seconds(5);

class MismatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(coordinator_.Start().ok());
    connection_ = Connect(coordinator_.address());
  }

  // Joins `first` and then `second`, which disagrees: it gets an error that names both, at once.
  // The group then forms with `agreed`.
  void ExpectSecondRefused(const ProcessGroupOptions& first, const ProcessGroupOptions& second,
                           const ProcessGroupOptions& agreed) {
    Answers<absl::Status> answers(3);
    std::mutex mutex;
    std::vector<std::unique_ptr<ProcessGroup>> joined;  // kept, or they would leave
    const auto into = [&](int index) {
      return [&, slot = answers.Slot(index)](absl::StatusOr<std::unique_ptr<ProcessGroup>> member) {
        const absl::Status status = member.status();
        if (member.ok()) {
          std::lock_guard<std::mutex> lock(mutex);
          joined.push_back(*std::move(member));
        }
        slot(status);
      };
    };
    ProcessGroup::CreateAsync(first, into(0));
    const auto people = client::AdminClient::Create(connection_);
    ASSERT_TRUE(testing::Eventually([&] { return people->GetGroup(first.group).ok(); }));
    const Instant start = Clock::Steady().Now();
    ProcessGroup::CreateAsync(second, into(1));
    ASSERT_TRUE(testing::Eventually([&] { return answers.arrived() == 1; }));
    EXPECT_LT(Clock::Steady().Now() - start, kAtOnce);
    EXPECT_EQ(answers[1].code(), absl::StatusCode::kFailedPrecondition) << answers[1];
    EXPECT_THAT(std::string(answers[1].message()), AllOf(HasSubstr("alice"), HasSubstr("bob")));
    ProcessGroup::CreateAsync(agreed, into(2));
    ASSERT_TRUE(answers.AwaitAll(testing::kTimeout + absl::Seconds(10)));
    EXPECT_TRUE(answers[0].ok()) << answers[0];
    EXPECT_TRUE(answers[2].ok()) << answers[2];
  }

  ProcessGroupOptions Named(const std::string& name, int rank, int world_size) {
    ProcessGroupOptions options = MemberOptions(connection_, "mismatch", rank, world_size);
    options.member = name;
    return options;
  }

  Members JoinThree() { return JoinAll({connection_}, "rounds", 3); }

  void ExpectBarrierWorks(Members& members, const std::string& name) {
    client::RoundOptions options;
    options.name = name;
    Answers<BarrierAnswer> answers(3);
    for (int rank = 0; rank < 3; ++rank)
      members[rank]->async().Barrier(options, BarrierSlot(answers, rank));
    ASSERT_TRUE(answers.AwaitAll());
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_TRUE(answers[rank].status.ok()) << answers[rank].status;
  }

  CoordinatorProcess coordinator_{{}};
  std::shared_ptr<client::Connection> connection_;
};

TEST_F(MismatchTest, AJoinWithAnotherWorldSizeFailsAloneAndTheGroupForms) {
  ExpectSecondRefused(Named("alice", 0, 2), Named("bob", 1, 3), Named("bob", 1, 2));
}

TEST_F(MismatchTest, AJoinWithAnotherParametersDigestFailsAloneAndTheGroupForms) {
  ProcessGroupOptions alice = Named("alice", 0, 2);
  alice.parameters_digest = "bf16-tp4";
  ProcessGroupOptions bob = Named("bob", 1, 2);
  bob.parameters_digest = "fp32-tp4";
  ProcessGroupOptions agreed = bob;
  agreed.parameters_digest = alice.parameters_digest;
  ExpectSecondRefused(alice, bob, agreed);
}

TEST_F(MismatchTest, OtherDigestOfABarrierFailsAll) {
  Members members = JoinThree();
  ASSERT_NE(members[2], nullptr);
  Answers<BarrierAnswer> answers(3);
  for (int rank = 0; rank < 3; ++rank) {
    client::RoundOptions options;
    options.name = "step";
    options.digest = rank == 1 ? "lr=0.2" : "lr=0.1";
    members[rank]->async().Barrier(options, BarrierSlot(answers, rank));
  }
  ASSERT_TRUE(answers.AwaitAll(kAtOnce)) << answers.arrived() << " of 3 were told at once";
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(answers[rank].status.code(), absl::StatusCode::kFailedPrecondition)
        << answers[rank].status;
    EXPECT_THAT(std::string(answers[rank].status.message()), HasSubstr("rank"));
    std::cout << answers[rank].status << std::endl;
  }
  ExpectBarrierWorks(members, "step");
}

TEST_F(MismatchTest, OtherParticipantsOfABarrierFailAll) {
  Members members = JoinThree();
  ASSERT_NE(members[2], nullptr);
  Answers<BarrierAnswer> answers(3);
  for (int rank = 0; rank < 3; ++rank) {
    client::RoundOptions options;
    options.name = "step";
    if (rank == 0) options.participants = {{0, 1}};
    members[rank]->async().Barrier(options, BarrierSlot(answers, rank));
  }
  ASSERT_TRUE(answers.AwaitAll(kAtOnce)) << answers.arrived() << " of 3 were told at once";
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(answers[rank].status.code(), absl::StatusCode::kFailedPrecondition)
        << answers[rank].status;
  }
  ExpectBarrierWorks(members, "step");
}

TEST_F(MismatchTest, OtherDigestOfAnAllGatherFailsAll) {
  Members members = JoinThree();
  ASSERT_NE(members[2], nullptr);
  Answers<absl::StatusOr<client::ObjectList>> answers(3);
  for (int rank = 0; rank < 3; ++rank) {
    client::RoundOptions options;
    options.digest = rank == 2 ? "shape=[4]" : "shape=[8]";
    members[rank]->async().AllGather("value", options, answers.Slot(rank));
  }
  ASSERT_TRUE(answers.AwaitAll(kAtOnce));
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(answers[rank].status().code(), absl::StatusCode::kFailedPrecondition)
        << answers[rank].status();
  }
  ExpectBarrierWorks(members, "after");
}

// Runs `call` on all three members at once, and expects that all get the error at once.
void ExpectAllRefused(Members& members,
                      const std::function<absl::Status(ProcessGroup&, int)>& call) {
  const Instant start = Clock::Steady().Now();
  testing::OnThreads(3, [&](int rank) {
    const absl::Status status = call(*members[rank], rank);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition)
        << "rank " << rank << ": " << status;
  });
  EXPECT_LT(Clock::Steady().Now() - start, kAtOnce);
}

TEST_F(MismatchTest, OtherOpOfAVoteFailsAll) {
  Members members = JoinThree();
  ASSERT_NE(members[2], nullptr);
  ExpectAllRefused(members, [](ProcessGroup& group, int rank) {
    return group.Vote(1, rank == 0 ? client::VoteOp::kSum : client::VoteOp::kMax).status();
  });
  ExpectBarrierWorks(members, "after");
}

TEST_F(MismatchTest, OtherRootOfAGatherFailsAll) {
  Members members = JoinThree();
  ASSERT_NE(members[2], nullptr);
  ExpectAllRefused(members, [](ProcessGroup& group, int rank) {
    return group.Gather("value", rank == 0 ? 0 : 1).status();
  });
  ExpectBarrierWorks(members, "after");
}

TEST_F(MismatchTest, TwoRootsOfABroadcastFailAllButTheFirst) {
  Members members = JoinThree();
  ASSERT_NE(members[2], nullptr);
  // A root waits for no member, so the first root succeeds. Members that then name the second root
  // fail, in any order. (If rank 2 named the first root before rank 1 called, it would rightly get
  // the value: the mismatch would be yet to come.)
  EXPECT_TRUE(members[0]->Broadcast("value", 0).ok());
  const Instant start = Clock::Steady().Now();
  testing::OnThreads(2, [&](int index) {
    const absl::Status status = members[1 + index]->Broadcast("value", 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition)
        << "rank " << 1 + index << ": " << status;
  });
  EXPECT_LT(Clock::Steady().Now() - start, kAtOnce);
  ExpectBarrierWorks(members, "after");
}

}  // namespace
}  // namespace cohort
