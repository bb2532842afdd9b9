// The invariants C7 to C9 of the control plane, each as a story: members that disagree, losses,
// limits. (C10 is the test of the server: coordinator/service/rpc_server_life_test.cc.)
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

// join_spec_conflict_test.cc tests which of the specs holds.
TEST(InvariantC7, AJoinThatDisagreesFailsAtOnceNamingBothSides) {
  CoreHarness h;
  TestMember one{"w0", 1}, two{"w1", 2};
  GroupSpec mine = CoreHarness::Fixed(4), theirs = CoreHarness::Fixed(8);
  h.Join(one, mine, 0);
  const CallId second = h.Join(two, theirs, 1);
  EXPECT_EQ(h.StatusOf(second).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(h.StatusOf(second).message()),
              testing::AllOf(HasSubstr("w0"), HasSubstr("w1"), HasSubstr("4"), HasSubstr("8")));
  GroupSpec digest = mine;
  digest.parameters_digest = "abc";
  const CallId third = h.Join(two, digest, 1);
  EXPECT_EQ(h.StatusOf(third).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(h.StatusOf(third).message()), HasSubstr("parameters digest"));
}

TEST(InvariantC7, EveryDifferenceOfTheGroupsTimesIsNamed) {
  const auto disagree = [](GroupSpec mine, absl::Duration GroupSpec::*time) {
    CoreHarness h;
    TestMember one{"w0", 1}, two{"w1", 2};
    mine.*time = absl::Seconds(7);
    GroupSpec theirs = mine;
    theirs.*time = absl::Seconds(9);
    h.Join(one, mine, 0);
    const CallId second = h.Join(two, theirs, 1);
    return std::string(h.StatusOf(second).message());
  };
  const GroupSpec fixed = CoreHarness::Fixed(4);
  EXPECT_THAT(disagree(fixed, &GroupSpec::lease), HasSubstr("lease 7s, not 9s"));
  EXPECT_THAT(disagree(fixed, &GroupSpec::attached_lease),
              HasSubstr("attached lease 7s, not 9s"));
  EXPECT_THAT(disagree(fixed, &GroupSpec::disconnect_grace),
              HasSubstr("disconnect grace 7s, not 9s"));
  EXPECT_THAT(disagree(fixed, &GroupSpec::data_expiration),
              HasSubstr("data expiration 7s, not 9s"));
  EXPECT_THAT(disagree(fixed, &GroupSpec::progress_timeout),
              HasSubstr("progress timeout 7s, not 9s"));
  GroupSpec elastic = fixed;
  elastic.min_members = 2;
  EXPECT_THAT(disagree(elastic, &GroupSpec::join_window), HasSubstr("join window 7s, not 9s"));
  // A fixed group has no window to disagree about.
  EXPECT_EQ(disagree(fixed, &GroupSpec::join_window), "parked");
}

// A broken group keeps its spec: a member that comes back with another spec is refused.
TEST(InvariantC7, ADifferenceIsNamedWhenTheGroupFormsAgainToo) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  h.Make(EvictCall{"w1", "test"}, Caller{});
  GroupSpec patient = CoreHarness::Fixed(2);
  patient.disconnect_grace = absl::Seconds(10);
  const CallId back = h.Join(members[0], patient, 0);
  EXPECT_EQ(h.StatusOf(back).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(h.StatusOf(back).message()),
              HasSubstr("disconnect grace 500ms, not 10s"));
}

TEST(InvariantC7, MismatchedRoundsFailAllTheirMembers) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  auto both_fail = [&](EnterRoundCall a, EnterRoundCall b, const char* what) {
    const CallId first = h.As(members[0], a);
    const CallId second = h.As(members[1], b);
    for (CallId id : {first, second}) {
      ASSERT_FALSE(h.Parked(id)) << what;
      EXPECT_EQ(h.Round(id)->outcome, RoundOutcome::kMismatch) << what;
      EXPECT_THAT(h.Round(id)->reason, testing::AllOf(HasSubstr("w0"), HasSubstr("w1"))) << what;
    }
    // The third gets the same, and the next number works.
    EnterRoundCall late = a;
    late.number = h.Round(first)->number;
    EXPECT_EQ(h.Round(h.As(members[2], late))->outcome, RoundOutcome::kMismatch) << what;
  };
  EnterRoundCall subset = Barrier();
  subset.participants = {{0, 1}};
  both_fail(Barrier(), subset, "participants");
  EnterRoundCall digest = Barrier();
  digest.digest = "x";
  both_fail(Barrier(), digest, "digest");
  both_fail(Barrier(), Round(RoundKind::kAllGather, "", "v"), "kind");
  EnterRoundCall root0 = Round(RoundKind::kGather, "", "v"), root1 = root0;
  root0.root = 0;
  root1.root = 1;
  both_fail(root0, root1, "root");
  EnterRoundCall sum = Round(RoundKind::kVote), min = sum;
  sum.op = VoteOp::kSum;
  min.op = VoteOp::kMin;
  both_fail(sum, min, "op");
  CallId last = 0;
  for (const TestMember& member : members) last = h.As(member, Barrier());
  EXPECT_EQ(h.Round(last)->outcome, RoundOutcome::kReleased);
}

// An ended round whose values are kept answers repeats; a member outside it has no value there.
TEST(InvariantC7, AnEndedRoundIsAMismatchForAMemberOutsideIt) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  EnterRoundCall two = Round(RoundKind::kScatter, "", "a");
  two.number = 1;
  two.root = 0;
  two.participants = {{0, 1}};
  two.values = {Value{"a", 0, true}, Value{"b", 0, true}};
  h.As(members[0], two);
  EXPECT_EQ(h.Round(h.As(members[1], two))->outcome, RoundOutcome::kReleased);
  EnterRoundCall all = two;
  all.participants.clear();
  EXPECT_EQ(h.Round(h.As(members[2], all))->outcome, RoundOutcome::kMismatch);
  EnterRoundCall own = two;
  own.participants = {{2, 2}};
  own.root = 2;
  own.values = {Value{"c", 0, true}};
  EXPECT_EQ(h.Round(h.As(members[2], own))->outcome, RoundOutcome::kMismatch);
  EXPECT_EQ(h.Round(h.As(members[1], two))->outcome, RoundOutcome::kReleased);
}

TEST(InvariantC8, AllMembersGetTheCauseOfALossAndTheFirstCauseWins) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(4);
  std::vector<CallId> waits;
  waits.push_back(h.As(members[0], Barrier("step"), absl::Seconds(300)));
  waits.push_back(h.As(members[1], Receive(3), absl::Seconds(300)));
  const CallId watch = h.Make(WatchGroupCall{0}, Caller{}, absl::Seconds(300));
  // Only 2 and 3 fall silent; a parked call does not renew by itself.
  h.AdvanceAlive(absl::Seconds(31), {members[0], members[1]});
  for (CallId id : waits) {
    ASSERT_FALSE(h.Parked(id));
    EXPECT_EQ(h.StatusOf(id).code(), absl::StatusCode::kAborted);
    const Cause& cause = h.Find(id)->context->cause;
    EXPECT_EQ(cause.kind, CauseKind::kLeaseExpired);
    EXPECT_EQ(cause.member, "w2");
    EXPECT_EQ(cause.rank, 2);
  }
  EXPECT_FALSE(h.Parked(watch));
  const CallId later = h.As(members[0], Barrier());
  EXPECT_EQ(h.Find(later)->context->cause.member, "w2");
  // The survivors agree on who they are, and go on in a new generation.
  EnterRoundCall agree = Round(RoundKind::kAgreeAlive, "alive");
  const CallId agree0 = h.As(members[0], agree), agree1 = h.As(members[1], agree);
  ASSERT_FALSE(h.Parked(agree0));
  EXPECT_EQ(h.Round(agree0)->alive.ToString(), "0-1");
  EXPECT_EQ(h.Round(agree1)->alive.ToString(), "0-1");
  const CallId propose = h.As(members[0], ProposeViewCall{});
  const CallId rival = h.As(members[1], ProposeViewCall{});
  EXPECT_EQ(h.StatusOf(rival).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(h.StatusOf(rival).message()), HasSubstr("w0"));
  const CallId shown = h.Make(GetGroupCall{}, Caller{});
  const int64_t proposal = h.Get<GetGroupReply>(shown)->group.proposal->id;
  const CallId ack = h.As(members[1], AckViewCall{proposal, false, ""});
  for (CallId id : {propose, ack}) {
    ASSERT_FALSE(h.Parked(id));
    EXPECT_EQ(h.Get<ViewReply>(id)->outcome, ViewReply::Outcome::kCommitted);
    EXPECT_EQ(h.Get<ViewReply>(id)->generation, 2);
    EXPECT_EQ(h.Get<ViewReply>(id)->world_size, 2);
  }
}

TEST(InvariantC8, AStreamThatTheCoordinatorEndedIsNoLoss) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId barrier = h.As(members[0], Barrier(), absl::Seconds(60));
  h.As(members[1], AttachCall{1, false});
  h.As(members[1], AttachCall{1, true, true});
  h.Advance(absl::Seconds(5));
  EXPECT_TRUE(h.Parked(barrier));
  // Another that breaks is one.
  h.As(members[1], AttachCall{2, false});
  h.As(members[1], AttachCall{2, true});
  h.Advance(absl::Milliseconds(501));
  EXPECT_FALSE(h.Parked(barrier));
}

TEST(InvariantC8, ABrokenConnectionIsALossWithinTheGraceAndARenewedOneIsNot) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId barrier = h.As(members[0], Barrier(), absl::Seconds(60));
  h.As(members[1], AttachCall{1, false});
  h.As(members[1], AttachCall{1, true});
  h.Advance(absl::Milliseconds(400));
  h.As(members[1], AttachCall{2, false});
  h.Advance(absl::Seconds(5));
  EXPECT_TRUE(h.Parked(barrier));
  h.As(members[1], AttachCall{2, true});
  h.Advance(absl::Milliseconds(501));
  ASSERT_FALSE(h.Parked(barrier));
  EXPECT_EQ(h.Find(barrier)->context->cause.kind, CauseKind::kConnectionLost);
  EXPECT_EQ(h.Find(barrier)->context->cause.member, "w1");
}

TEST(InvariantC8, AliveWithoutProgressIsALoss) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(2);
  spec.progress_timeout = absl::Seconds(20);
  std::vector<TestMember> members = h.Form(spec);
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(300));
  for (int second = 0; second < 21; ++second) {
    h.As(members[0], KeepAliveCall{second + 1, "waits"});
    h.As(members[1], KeepAliveCall{second < 5 ? second + 1 : 5,
                                   "all_reduce"});  // the thread that works is stuck
    h.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(h.Parked(barrier));
  for (int second = 21; second < 26; ++second) {
    h.As(members[0], KeepAliveCall{second + 1, "waits"});
    h.As(members[1], KeepAliveCall{5, "all_reduce"});
    h.Advance(absl::Seconds(1));
  }
  ASSERT_FALSE(h.Parked(barrier));
  EXPECT_EQ(h.Find(barrier)->context->cause.kind, CauseKind::kNoProgress);
  EXPECT_THAT(h.Find(barrier)->context->cause.detail, HasSubstr("all_reduce"));
}

TEST(InvariantC8, AMemberThatWaitsInARoundIsNotTakenForStuck) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(2);
  spec.progress_timeout = absl::Seconds(20);
  std::vector<TestMember> members = h.Form(spec);
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(300));
  for (int second = 0; second < 60; ++second) {
    h.As(members[0], KeepAliveCall{1, "waits"});
    h.As(members[1], KeepAliveCall{second + 1, "works long"});
    h.Advance(absl::Seconds(1));
  }
  EXPECT_TRUE(h.Parked(barrier));
  h.As(members[1], Barrier("step"), absl::Seconds(300));
  EXPECT_FALSE(h.Parked(barrier));

  // Released, it must work again like all members.
  const CallId next = h.As(members[1], Barrier("step"), absl::Seconds(300));
  for (int second = 0; second < 45; ++second) {
    h.As(members[0], KeepAliveCall{1, "stuck"});
    h.As(members[1], KeepAliveCall{60, "waits"});
    h.Advance(absl::Seconds(1));
  }
  ASSERT_FALSE(h.Parked(next));
  EXPECT_EQ(h.Find(next)->context->cause.kind, CauseKind::kNoProgress);
  EXPECT_EQ(h.Find(next)->context->cause.member, "w0");
}

TEST(InvariantC9, LimitsNameThemselvesAndNothingIsLost) {
  Limits limits;
  limits.max_mailbox_depth = 2;
  limits.max_group_bytes_held = 100;
  CoreHarness h(limits);
  std::vector<TestMember> members = h.Form(2);
  h.As(members[0], Send(1, "1"));
  h.As(members[0], Send(1, "2"));
  const CallId full = h.As(members[0], Send(1, "3"));
  EXPECT_EQ(h.StatusOf(full).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(h.StatusOf(full).message()), HasSubstr("max_mailbox_depth"));
  const CallId large = h.As(members[0], Send(1, std::string(200, 'x'), "t"));
  EXPECT_THAT(std::string(h.StatusOf(large).message()), HasSubstr("max_group_bytes_held"));
  EXPECT_EQ(h.Get<ReceiveReply>(h.As(members[1], Receive(0)))->payload.bytes(), "1");
  EXPECT_EQ(h.Get<ReceiveReply>(h.As(members[1], Receive(0)))->payload.bytes(), "2");
  h.ForgetReplies();
  EXPECT_EQ(h.core().Stats().bytes_held, 0);
}

}  // namespace
}  // namespace cohort::coordinator
