// Members that join with different specs: whose spec stands, who is refused, and who goes on
// waiting.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/testing/core_harness.h"

namespace cohort::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using TestMember = CoreHarness::TestMember;

class JoinSpecTest : public ::testing::Test {
 protected:
  CallId Join(int rank, int world_size, int64_t incarnation = 1) {
    TestMember member{absl::StrCat("w", rank), incarnation};
    return h_.Join(member, CoreHarness::Fixed(world_size), rank);
  }
  std::string TextOf(CallId id) { return std::string(h_.StatusOf(id).message()); }
  void ExpectRefused(CallId id) {
    EXPECT_EQ(h_.StatusOf(id).code(), absl::StatusCode::kFailedPrecondition) << h_.StatusOf(id);
  }
  void ExpectJoined(CallId id, int world_size) {
    ASSERT_NE(h_.Get<JoinReply>(id), nullptr) << h_.StatusOf(id);
    EXPECT_EQ(h_.Get<JoinReply>(id)->world_size, world_size);
  }

  CoreHarness h_;
};

TEST_F(JoinSpecTest, AStrayJoinIsRefusedAloneAndTheOthersComplete) {
  const CallId first = Join(0, 3), second = Join(1, 3);
  const CallId stray = Join(2, 5);
  ExpectRefused(stray);
  EXPECT_THAT(
      TextOf(stray),
      AllOf(HasSubstr("member w0 (rank 0) brings world size 3, not 5 as member w2 (rank 2)"),
            HasSubstr("2 members have joined")));
  EXPECT_TRUE(h_.Parked(first));
  EXPECT_TRUE(h_.Parked(second));
  const CallId third = Join(2, 3);
  for (CallId id : {first, second, third}) ExpectJoined(id, 3);
}

TEST_F(JoinSpecTest, AMemberThatComesAgainWithAnotherSpecDoesNotDisagreeWithItself) {
  const CallId first = Join(0, 3);
  const CallId again = Join(0, 1, /*incarnation=*/2);  // alone: its new spec is the group's
  EXPECT_EQ(h_.StatusOf(first).code(), absl::StatusCode::kCancelled);
  ExpectJoined(again, 1);
}

TEST_F(JoinSpecTest, TheSameIncarnationMayCorrectItsSpecWhileItIsAlone) {
  h_.Cancel(Join(0, 3));
  const CallId again = Join(0, 2);
  EXPECT_TRUE(h_.Parked(again));
  ExpectJoined(Join(1, 2), 2);
  ExpectJoined(again, 2);
}

TEST_F(JoinSpecTest, TheCreatorAgainstTheOthersIsRefusedAlone) {
  const CallId first = Join(0, 3);
  const CallId second = Join(1, 3);
  const CallId again = Join(0, 2, /*incarnation=*/2);
  ExpectRefused(again);
  EXPECT_THAT(TextOf(again),
              AllOf(HasSubstr("the group has world size 3, not 2 as member w0"),
                    HasSubstr("1 member has joined"), Not(HasSubstr("w0 (rank 0) brings world"))));
  EXPECT_TRUE(h_.Parked(first));
  EXPECT_TRUE(h_.Parked(second));
}

TEST_F(JoinSpecTest, TheMajorityReplacesAStrayThatCameFirst) {
  const CallId stray = Join(0, 9);
  ExpectRefused(Join(1, 3));  // one against one: the first stands
  const CallId second = Join(2, 3);
  EXPECT_TRUE(h_.Parked(second));
  ExpectRefused(stray);
  EXPECT_THAT(TextOf(stray),
              AllOf(HasSubstr("member w2 (rank 2) and 1 other bring world size 3, not 9"),
                    HasSubstr("as member w0 (rank 0) brings")));
  const CallId first = Join(1, 3);
  const CallId last = Join(0, 3);
  for (CallId id : {first, second, last}) ExpectJoined(id, 3);
}

TEST_F(JoinSpecTest, TheSpecOfTheMajorityHoldsForTheStoreToo) {
  GroupSpec of_stray = CoreHarness::Fixed(9);
  of_stray.data_expiration = absl::Hours(1);
  GroupSpec of_others = CoreHarness::Fixed(2);
  of_others.data_expiration = absl::Seconds(5);
  TestMember stray{"stray", 1}, first{"w0", 1}, second{"w1", 1};
  h_.Join(stray, of_stray, 0);
  ExpectRefused(h_.Join(first, of_others, 0));
  const CallId second_join = h_.Join(second, of_others, 1);
  const CallId first_join = h_.Join(first, of_others, 0);
  ASSERT_TRUE(h_.JoinAnswered(first, first_join));
  ASSERT_TRUE(h_.JoinAnswered(second, second_join));
  h_.As(first, QueuePushCall{"work", "value", std::nullopt});
  h_.AdvanceAlive(absl::Seconds(6), {first, second});
  const auto* pop = h_.Get<QueuePopReply>(h_.As(first, QueuePopCall{"work"}, absl::ZeroDuration()));
  ASSERT_NE(pop, nullptr);
  EXPECT_FALSE(pop->found);
}

// The coordinator keeps the last 64 refused joins of a group: 71 strays cannot outvote 70 members.
TEST_F(JoinSpecTest, KeepsABoundedNumberOfRefusedJoins) {
  std::vector<CallId> joins;
  for (int rank = 0; rank < 70; ++rank) joins.push_back(Join(rank, 80));
  for (int stray = 100; stray < 172; ++stray) {
    TestMember member{absl::StrCat("stray", stray), 1};
    ExpectRefused(h_.Join(member, CoreHarness::Fixed(90), std::nullopt));
  }
  for (const CallId join : joins) EXPECT_TRUE(h_.Parked(join));
}

TEST_F(JoinSpecTest, ARetryIsOneVoice) {
  const CallId first = Join(0, 3);
  for (int i = 0; i < 3; ++i) ExpectRefused(Join(1, 4, /*incarnation=*/1 + i));
  EXPECT_TRUE(h_.Parked(first));
}

TEST_F(JoinSpecTest, WaitingMembersSeeTheRefusedMembers) {
  TestMember first{"w0", 1};
  const CallId waits = h_.Join(first, CoreHarness::Fixed(4), 0, absl::Seconds(10));
  ExpectRefused(Join(1, 5));
  h_.Advance(absl::Seconds(3));
  Join(3, 4);
  ExpectRefused(Join(2, 6));
  h_.Advance(absl::Seconds(7));
  ASSERT_NE(h_.Get<JoinReply>(waits), nullptr);
  const MissingReport& missing = h_.Get<JoinReply>(waits)->missing;
  EXPECT_EQ(missing.first_rank, 0);
  EXPECT_EQ(missing.last_rank, 3);
  EXPECT_EQ(missing.since_first, absl::Seconds(10));
  EXPECT_EQ(missing.skew, absl::Seconds(3));
  ASSERT_EQ(missing.details.size(), 2u);
  EXPECT_EQ(missing.details[0].member, "w1");
  EXPECT_EQ(missing.details[0].host, "host-w1");
  EXPECT_EQ(missing.details[0].last_operation, "join (refused: the group has world size 4, not 5)");
  EXPECT_EQ(missing.details[0].last_operation_age, absl::Seconds(10));
  EXPECT_EQ(missing.details[0].last_heard, absl::Seconds(10));
  EXPECT_EQ(missing.details[1].member, "w2");
  EXPECT_EQ(missing.details[1].host, "host-w2");
  EXPECT_EQ(missing.details[1].last_operation, "join (refused: the group has world size 4, not 6)");
  EXPECT_EQ(missing.details[1].last_operation_age, absl::Seconds(7));
  EXPECT_EQ(missing.details[1].last_heard, absl::Seconds(7));
}

TEST_F(JoinSpecTest, TheReportOfAJoinThatTimesOutCountsItAmongTheArrivals) {
  TestMember without_rank{"a", 1};
  const CallId first =
      h_.Join(without_rank, CoreHarness::Fixed(3), std::nullopt, absl::Seconds(10));
  h_.Advance(absl::Seconds(4));
  TestMember with_rank{"b", 1};
  const CallId last = h_.Join(with_rank, CoreHarness::Fixed(3), 2, absl::Seconds(10));
  h_.Advance(absl::Seconds(6));
  ASSERT_NE(h_.Get<JoinReply>(first), nullptr);
  const MissingReport& of_first = h_.Get<JoinReply>(first)->missing;
  EXPECT_EQ(of_first.first_rank, std::nullopt);
  EXPECT_EQ(of_first.last_rank, 2);
  EXPECT_EQ(of_first.since_first, absl::Seconds(10));
  EXPECT_EQ(of_first.skew, absl::Seconds(4));
  h_.Advance(absl::Seconds(4));
  ASSERT_NE(h_.Get<JoinReply>(last), nullptr);
  const MissingReport& of_last = h_.Get<JoinReply>(last)->missing;
  EXPECT_EQ(of_last.first_rank, 2);
  EXPECT_EQ(of_last.last_rank, 2);
  EXPECT_EQ(of_last.since_first, absl::Seconds(10));
  EXPECT_EQ(of_last.skew, absl::ZeroDuration());
}

TEST_F(JoinSpecTest, ARefusedStrangerDoesNotStandForTheMemberThatHasItsRank) {
  std::vector<TestMember> members = h_.Form(3);
  h_.As(members[0], ReportErrorCall{"disk on fire", true, {}});
  const CallId waits = h_.Join(members[0], CoreHarness::Fixed(3), 0, absl::Seconds(10));
  TestMember stranger{"stranger", 1};
  ExpectRefused(h_.Join(stranger, CoreHarness::Fixed(2), 1));
  ExpectRefused(Join(2, 2));
  h_.Advance(absl::Seconds(10));
  ASSERT_NE(h_.Get<JoinReply>(waits), nullptr);
  const MissingReport& missing = h_.Get<JoinReply>(waits)->missing;
  ASSERT_EQ(missing.details.size(), 2u);
  EXPECT_EQ(missing.details[0].member, "w1");
  EXPECT_EQ(missing.details[0].host, "host-w1");
  EXPECT_EQ(missing.details[1].member, "w2");
}

TEST_F(JoinSpecTest, ASpecOfCreateGroupIsNeverReplaced) {
  h_.Make(CreateGroupCall{CoreHarness::Fixed(2)}, Caller{});
  for (int rank = 0; rank < 3; ++rank) ExpectRefused(Join(rank, 3));
  Join(0, 2);
  ExpectJoined(Join(1, 2), 2);
}

TEST_F(JoinSpecTest, ASpecThatOnceFormedStaysAndTheOthersGoOnWaiting) {
  std::vector<TestMember> members = h_.Form(3);
  h_.As(members[2], ReportErrorCall{"disk on fire", true, {}});
  const CallId first = h_.Join(members[0], CoreHarness::Fixed(3), 0);
  for (int i = 1; i < 3; ++i) ExpectRefused(h_.Join(members[i], CoreHarness::Fixed(2), i));
  EXPECT_TRUE(h_.Parked(first));
  h_.Join(members[1], CoreHarness::Fixed(3), 1);
  ExpectJoined(h_.Join(members[2], CoreHarness::Fixed(3), 2), 3);
  ExpectJoined(first, 3);
}

TEST_F(JoinSpecTest, TheCreatorIsKnownAfterARestart) {
  Join(0, 3);
  h_.Restart();
  h_.Advance(absl::Seconds(31));  // it never came back
  TestMember other{"other", 7};
  ExpectJoined(h_.Join(other, CoreHarness::Fixed(1), 0), 1);
}

}  // namespace
}  // namespace cohort::coordinator
