// The ranks that are missing in operations on tensors, combined from the members' reports.
#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/core_harness.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using TestMember = CoreHarness::TestMember;

TensorOperation Operation(int64_t number, absl::Duration begun,
                          Collective collective = Collective::kAllReduce) {
  TensorOperation operation;
  operation.generation = 1;
  operation.number = number;
  operation.collective = collective;
  operation.state = "running";
  operation.begun = begun;
  return operation;
}
KeepAliveCall Saying(TensorReport report) {
  report.moves_tensors = true;
  KeepAliveCall call;
  call.tensors = std::move(report);
  return call;
}
// In the operation, for so long.
KeepAliveCall In(const TensorOperation& operation, std::vector<RankRange> waits_for = {}) {
  TensorReport report;
  report.open = operation;
  if (operation.number != 0) report.last = operation;
  report.waits_for = std::move(waits_for);
  return Saying(std::move(report));
}
// Through with it.
KeepAliveCall After(TensorOperation operation) {
  operation.ended = operation.begun / 2;
  TensorReport report;
  report.last = std::move(operation);
  return Saying(std::move(report));
}

class TensorWaitsTest : public testing::Test {
 protected:
  // Opens a watch that answers questions for each member.
  std::vector<TestMember> FormAsked(int world_size) {
    std::vector<TestMember> members = h_.Form(world_size);
    for (const TestMember& member : members) Watch(member);
    return members;
  }
  void Watch(const TestMember& member) {
    WatchGroupCall watch;
    watch.reports = true;
    watches_[member.name] = h_.As(member, watch, absl::Seconds(600));
  }
  // Whether the member's watch has been asked; if so, it watches on.
  bool TakeQuestion(const TestMember& member) {
    const auto* reply = h_.Get<WatchGroupReply>(watches_.at(member.name));
    if (reply == nullptr || !reply->report) return false;
    EXPECT_THAT(reply->events, IsEmpty());
    Watch(member);
    return true;
  }
  WhoIsMissingReply Ask(bool ask = true) {
    const auto* reply = h_.Get<WhoIsMissingReply>(h_.Make(WhoIsMissingCall{ask}, Caller{}));
    EXPECT_NE(reply, nullptr);
    return *reply;
  }

  CoreHarness h_;
  std::map<std::string, CallId> watches_;
};

TEST_F(TensorWaitsTest, NamesTheRankThatHasNotCome) {
  const std::vector<TestMember> members = FormAsked(3);
  EXPECT_EQ(Ask().unanswered.ToString(), "0-2");
  for (const TestMember& member : members) EXPECT_TRUE(TakeQuestion(member)) << member.name;
  h_.As(members[0], In(Operation(42, absl::Seconds(12))));
  h_.As(members[1], In(Operation(42, absl::Seconds(11))));
  h_.As(members[2], After(Operation(41, absl::Seconds(14))));
  h_.Advance(absl::Seconds(1));
  const WhoIsMissingReply reply = Ask(/*ask=*/false);
  EXPECT_TRUE(reply.unanswered.empty());
  EXPECT_TRUE(reply.unknown.empty());
  ASSERT_EQ(reply.tensor_waits.size(), 1u);
  const TensorWait& wait = reply.tensor_waits[0];
  EXPECT_EQ(wait.operation, "all_reduce #42");
  EXPECT_THAT(wait.missing.arrived, ElementsAre(RankRange{0, 1}));
  EXPECT_THAT(wait.missing.missing, ElementsAre(RankRange{2, 2}));
  EXPECT_EQ(wait.missing.details[0].member, "w2");
  EXPECT_EQ(wait.age, absl::Seconds(13)) << "of the first that came, until now";
  EXPECT_EQ(FormatRanges(wait.inside), "0-1");
  ASSERT_EQ(reply.ranks.size(), 1u);
  EXPECT_EQ(reply.ranks[0].rank, 2);
  EXPECT_EQ(reply.ranks[0].reported, absl::Seconds(1));
  EXPECT_EQ(reply.ranks[0].tensors.last->number, 41);
}

// Such as the root of a broadcast.
TEST_F(TensorWaitsTest, ARankThatIsThroughWithTheOperationIsNotMissing) {
  const std::vector<TestMember> members = FormAsked(3);
  Ask();
  for (const TestMember& member : members) EXPECT_TRUE(TakeQuestion(member)) << member.name;
  h_.As(members[0], After(Operation(42, absl::Seconds(12), Collective::kBroadcast)));
  h_.As(members[1], In(Operation(42, absl::Seconds(11), Collective::kBroadcast)));
  h_.As(members[2], After(Operation(41, absl::Seconds(14))));
  const WhoIsMissingReply reply = Ask(/*ask=*/false);
  ASSERT_EQ(reply.tensor_waits.size(), 1u);
  EXPECT_THAT(reply.tensor_waits[0].missing.arrived, ElementsAre(RankRange{0, 1}));
  EXPECT_THAT(reply.tensor_waits[0].missing.missing, ElementsAre(RankRange{2, 2}));
}

TEST_F(TensorWaitsTest, ARankThatDoesNotAnswerIsNamedWithWhatItSaidLast) {
  const std::vector<TestMember> members = FormAsked(3);
  // Before it was stopped: in the operation as the others.
  for (const TestMember& member : members) h_.As(member, In(Operation(7, absl::Milliseconds(1))));
  h_.Advance(absl::Seconds(5));
  EXPECT_THAT(Ask(/*ask=*/false).tensor_waits, IsEmpty()) << "young when they said so";
  Ask();
  for (int rank = 0; rank < 2; ++rank) {
    h_.As(members[rank], In(Operation(7, absl::Seconds(5))));
  }
  WhoIsMissingReply reply = Ask(/*ask=*/false);
  EXPECT_EQ(reply.unanswered.ToString(), "2");
  ASSERT_EQ(reply.tensor_waits.size(), 1u);
  EXPECT_THAT(reply.tensor_waits[0].missing.missing, IsEmpty()) << "it came";
  EXPECT_EQ(FormatRanges(reply.tensor_waits[0].inside), "0-2");
  ASSERT_EQ(reply.ranks.size(), 1u);
  EXPECT_EQ(reply.ranks[0].rank, 2);
  EXPECT_EQ(reply.ranks[0].reported, absl::Seconds(5));

  // In the next operation it has not come.
  for (int rank = 0; rank < 2; ++rank) {
    h_.As(members[rank], In(Operation(8, absl::Seconds(4))));
  }
  reply = Ask(/*ask=*/false);
  ASSERT_EQ(reply.tensor_waits.size(), 1u) << "its report on #7 is from an earlier moment";
  EXPECT_EQ(reply.tensor_waits[0].operation, "all_reduce #8");
  EXPECT_THAT(reply.tensor_waits[0].missing.missing, ElementsAre(RankRange{2, 2}));
}

TEST_F(TensorWaitsTest, ARankStuckInsideACallIsTheOneThatOthersWaitFor) {
  const std::vector<TestMember> members = FormAsked(3);
  Ask();
  h_.As(members[0], In(Operation(7, absl::Seconds(3)), {{2, 2}}));
  h_.As(members[1], In(Operation(7, absl::Seconds(3)), {{2, 2}}));
  h_.As(members[2], In(Operation(7, absl::Seconds(3))));
  const WhoIsMissingReply reply = Ask(/*ask=*/false);
  ASSERT_EQ(reply.tensor_waits.size(), 1u);
  EXPECT_EQ(reply.tensor_waits[0].missing.arrived_count, 3);
  EXPECT_EQ(FormatRanges(reply.tensor_waits[0].waited_for), "2");
  ASSERT_EQ(reply.ranks.size(), 1u);
  EXPECT_EQ(reply.ranks[0].rank, 2);
}

TEST_F(TensorWaitsTest, RanksThatMakeProgressDoNotWait) {
  const std::vector<TestMember> members = FormAsked(3);
  Ask();
  h_.As(members[0], In(Operation(101, absl::Milliseconds(1))));
  h_.As(members[1], In(Operation(100, absl::Milliseconds(2))));
  h_.As(members[2], After(Operation(99, absl::Milliseconds(3))));
  EXPECT_THAT(Ask(/*ask=*/false).tensor_waits, IsEmpty());
  // All are in a large one, and none is known to be late.
  for (const TestMember& member : members) h_.As(member, In(Operation(102, absl::Seconds(9))));
  EXPECT_THAT(Ask(/*ask=*/false).tensor_waits, IsEmpty());
  for (const TestMember& member : members) h_.As(member, In(Operation(102, absl::Seconds(10))));
  EXPECT_EQ(Ask(/*ask=*/false).tensor_waits.size(), 1u) << "that takes long";
}

TEST_F(TensorWaitsTest, ARankInAnotherOperationIsNamedWithIt) {
  const std::vector<TestMember> members = FormAsked(4);
  Ask();
  h_.As(members[0], In(Operation(5, absl::Seconds(3))));
  h_.As(members[1], In(Operation(5, absl::Seconds(2), Collective::kBroadcast)));
  TensorOperation transfer = Operation(0, absl::Seconds(4), Collective::kExchange);
  transfer.peer = 0;
  h_.As(members[2], In(transfer));
  // Waits at the coordinator meanwhile.
  h_.As(members[3], After(Operation(4, absl::Seconds(5))));
  h_.As(members[3], EnterRoundCall{});
  const WhoIsMissingReply reply = Ask(/*ask=*/false);
  ASSERT_EQ(reply.tensor_waits.size(), 2u);
  EXPECT_EQ(reply.tensor_waits[0].operation, "exchange with rank 0");
  EXPECT_EQ(FormatRanges(reply.tensor_waits[0].inside), "2");
  EXPECT_THAT(reply.tensor_waits[0].missing.missing, ElementsAre(RankRange{0, 0}));
  EXPECT_EQ(reply.tensor_waits[1].operation, "all_reduce #5");
  EXPECT_EQ(reply.tensor_waits[1].mismatch, "rank 1 called broadcast");
  EXPECT_THAT(reply.tensor_waits[1].missing.missing, ElementsAre(RankRange{2, 3}));
  ASSERT_EQ(reply.waits.size(), 1u);
  EXPECT_EQ(reply.waits[0].operation, "barrier \"\" #1");
}

TEST_F(TensorWaitsTest, BothEndsOfALongTransferAreNoWaitUntilItTakesTooLong) {
  const std::vector<TestMember> members = FormAsked(2);
  Ask();
  const auto say = [&](absl::Duration age, std::vector<RankRange> waits_for) {
    for (int rank = 0; rank < 2; ++rank) {
      TensorOperation transfer = Operation(0, age, Collective::kExchange);
      transfer.peer = 1 - rank;
      h_.As(members[rank], In(transfer, rank == 0 ? waits_for : std::vector<RankRange>()));
    }
    return Ask(/*ask=*/false).tensor_waits.size();
  };
  EXPECT_EQ(say(absl::Seconds(2), {}), 0u);
  EXPECT_EQ(say(absl::Seconds(2), {{1, 1}}), 1u);
  EXPECT_EQ(say(absl::Seconds(10), {}), 2u);
}

TEST_F(TensorWaitsTest, ATransferWhosePeerIsInAnotherTransferIsAWaitAtOnce) {
  const std::vector<TestMember> members = FormAsked(3);
  Ask();
  for (int rank = 0; rank < 2; ++rank) {
    TensorOperation transfer = Operation(0, absl::Seconds(2), Collective::kExchange);
    transfer.peer = rank + 1;
    h_.As(members[rank], In(transfer));
  }
  const auto reply = Ask(/*ask=*/false);
  ASSERT_EQ(reply.tensor_waits.size(), 2u);
  EXPECT_THAT(reply.tensor_waits[0].missing.missing, ElementsAre(RankRange{1, 1}));
  EXPECT_THAT(reply.tensor_waits[1].missing.missing, ElementsAre(RankRange{2, 2}));
}

TEST_F(TensorWaitsTest, NamesRanksThatNeverReported) {
  const std::vector<TestMember> members = h_.Form(3);
  Watch(members[0]);
  h_.As(members[1], KeepAliveCall{});  // of a library that does not report
  WhoIsMissingReply reply = Ask();
  EXPECT_EQ(reply.unanswered.ToString(), "0");
  EXPECT_EQ(reply.unknown.ToString(), "1-2");
  ASSERT_EQ(reply.ranks.size(), 3u);
  EXPECT_FALSE(reply.ranks[1].reported.has_value());
  KeepAliveCall no_tensors;
  no_tensors.tensors = TensorReport();
  for (const TestMember& member : members) h_.As(member, no_tensors);
  reply = Ask(/*ask=*/false);
  EXPECT_TRUE(reply.unanswered.empty());
  EXPECT_TRUE(reply.unknown.empty());
  // A keep-alive without a report, such as one that acknowledges, takes nothing back.
  for (const TestMember& member : members) h_.As(member, KeepAliveCall{});
  EXPECT_TRUE(Ask(/*ask=*/false).unknown.empty());
}

TEST_F(TensorWaitsTest, AQuestionReachesAWatchThatIsBetweenTwoSteps) {
  const std::vector<TestMember> members = FormAsked(2);
  h_.Cancel(watches_.at("w1"));
  Ask();
  EXPECT_TRUE(TakeQuestion(members[0]));
  Watch(members[1]);
  EXPECT_TRUE(TakeQuestion(members[1]));
  EXPECT_FALSE(TakeQuestion(members[1])) << "once";
  // Questions at the same time share the answers.
  Ask();
  EXPECT_FALSE(TakeQuestion(members[0]));
  h_.Advance(absl::Seconds(1));
  Ask();
  EXPECT_TRUE(TakeQuestion(members[0]));
}

TEST_F(TensorWaitsTest, ReportsOfAnOlderGenerationOrIncarnationDoNotCount) {
  std::vector<TestMember> members = FormAsked(2);
  h_.As(members[0], In(Operation(5, absl::Seconds(3))));
  ASSERT_EQ(Ask(/*ask=*/false).tensor_waits.size(), 1u);
  for (TestMember& member : members) member.incarnation += 1000, member.session = Id128{};
  h_.Reform(members, CoreHarness::Fixed(2));
  ASSERT_EQ(members[0].generation, 2);
  WhoIsMissingReply reply = Ask(/*ask=*/false);
  EXPECT_THAT(reply.tensor_waits, IsEmpty());
  EXPECT_EQ(reply.unknown.ToString(), "0-1");
  h_.As(members[0], In(Operation(5, absl::Seconds(3))));  // still of generation 1
  EXPECT_THAT(Ask(/*ask=*/false).tensor_waits, IsEmpty());
}

}  // namespace
}  // namespace cohort::coordinator
