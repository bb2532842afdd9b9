// How long a silent member counts as live: with an attached stream, and when the coordinator slept.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/time/time.h"
#include "base/threads/thread_time.h"
#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

GroupSpec Spec(absl::Duration lease, absl::Duration attached_lease = absl::ZeroDuration()) {
  GroupSpec spec = CoreHarness::Fixed(2);
  spec.lease = lease;
  spec.attached_lease = attached_lease;
  return spec;
}

GroupInfo Describe(CoreHarness& h) {
  return h.Get<GetGroupReply>(h.Make(GetGroupCall{}, Caller{}))->group;
}

MemberInfo Member(CoreHarness& h, int rank) { return Describe(h).members[rank]; }

// Time passes, and rank 0 alone renews its lease.
void Pass(CoreHarness& h, absl::Duration time, const TestMember& alive) {
  for (; time > absl::ZeroDuration(); time -= absl::Seconds(1)) {
    h.As(alive, KeepAliveCall{});
    h.Advance(std::min(time, absl::Seconds(1)));
  }
}

TEST(AttachedLease, AnOpenStreamKeepsTheMemberAlive) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6), absl::Seconds(30)));
  h.As(members[1], AttachCall{1});
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(29), members[0]);
  ASSERT_TRUE(h.Parked(barrier));
  // The member is suspected although its stream is open.
  EXPECT_EQ(Member(h, 1).state, MemberState::kSuspected);
  EXPECT_TRUE(Member(h, 1).attached);
  EXPECT_EQ(Member(h, 1).last_heard, absl::Seconds(29));
  EXPECT_FALSE(Member(h, 0).attached);
  const auto* missing = h.Get<WhoIsMissingReply>(h.Make(WhoIsMissingCall{}, Caller{}));
  ASSERT_EQ(missing->waits.size(), 1);
  ASSERT_EQ(missing->waits[0].missing.details.size(), 1);
  EXPECT_TRUE(missing->waits[0].missing.details[0].attached);
  EXPECT_EQ(missing->waits[0].missing.details[0].last_heard, absl::Seconds(29));
  // Its thread runs again.
  h.As(members[1], KeepAliveCall{});
  EXPECT_EQ(Member(h, 1).state, MemberState::kActive);
}

TEST(AttachedLease, BoundsTheSilence) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6), absl::Seconds(30)));
  h.As(members[1], AttachCall{1});
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(31), members[0]);
  ASSERT_FALSE(h.Parked(barrier));
  const Cause& cause = h.Find(barrier)->context->cause;
  EXPECT_EQ(cause.kind, CauseKind::kLeaseExpired);
  EXPECT_EQ(cause.member, "w1");
  EXPECT_THAT(cause.detail, HasSubstr("its attached lease is 30s"));
}

TEST(AttachedLease, IsFourLeasesByDefault) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6)));
  h.As(members[1], AttachCall{1});
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(23), members[0]);
  EXPECT_TRUE(h.Parked(barrier));
  Pass(h, absl::Seconds(2), members[0]);
  EXPECT_FALSE(h.Parked(barrier));
}

TEST(AttachedLease, EqualToTheLeaseChangesNothing) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6), absl::Seconds(6)));
  h.As(members[1], AttachCall{1});
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(7), members[0]);
  EXPECT_FALSE(h.Parked(barrier));
}

TEST(AttachedLease, WithoutAStreamTheLeaseHolds) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6), absl::Seconds(30)));
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(7), members[0]);
  ASSERT_FALSE(h.Parked(barrier));
  EXPECT_THAT(h.Find(barrier)->context->cause.detail, HasSubstr("its lease is 6s"));
}

// With every member attached and silent, the only deadline is that of their streams.
TEST(AttachedLease, AStreamThatEndsStartsTheLeaseWhenNoOtherDeadlineIsNear) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6), absl::Seconds(60)));
  h.As(members[0], AttachCall{1});
  h.As(members[1], AttachCall{2});
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(300));
  h.Advance(absl::Seconds(20));
  h.As(members[1], AttachCall{2, /*closed=*/true, /*by_us=*/true});
  h.Advance(absl::Seconds(5));
  EXPECT_TRUE(h.Parked(barrier));
  h.Advance(absl::Seconds(2));
  ASSERT_FALSE(h.Parked(barrier));
  EXPECT_EQ(h.Find(barrier)->context->cause.member, "w1");
}

// How the members of a group are lost, all at once.
enum class LostBy { kStreamsThatEnd, kLeases, kEvictions };

// The processor time of the loss of a whole group.
absl::Duration TimeToLose(int count, LostBy by) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(count);
  spec.lease = absl::Seconds(6);
  spec.fate = Fate::kReport;
  const std::vector<TestMember> members = h.Form(spec);
  std::vector<CallId> watches;
  for (int i = 0; i < count && by == LostBy::kStreamsThatEnd; ++i) {
    h.As(members[i], AttachCall{i + 1});
    watches.push_back(h.As(members[i], WatchGroupCall{}, absl::Minutes(1)));
    EXPECT_TRUE(h.Parked(watches.back()));
  }
  h.ForgetReplies();
  const absl::Duration begin = ThreadTime();
  for (int i = 0; i < count; ++i) {
    if (by == LostBy::kStreamsThatEnd) {
      h.Cancel(watches[i]);
      h.As(members[i], AttachCall{i + 1, /*closed=*/true});
    } else if (by == LostBy::kEvictions) {
      h.Make(EvictCall{members[i].name}, Caller{});
    }
  }
  h.Advance(absl::Seconds(12));
  const absl::Duration time = ThreadTime() - begin;
  EXPECT_EQ(h.core().Stats().members_lost, count);
  return time;
}

// Checks how the time grows, not its length: once, four times the members took 16 times as long.
TEST(Losses, TimeGrowsWithTheMembersAndNotTheirSquare) {
  constexpr int kFew = 1000;
  constexpr int kMany = 4 * kFew;
  for (const LostBy by : {LostBy::kStreamsThatEnd, LostBy::kLeases, LostBy::kEvictions}) {
    absl::Duration few = absl::InfiniteDuration();
    absl::Duration many = absl::InfiniteDuration();
    for (int attempt = 0; attempt < 3; ++attempt) {
      few = std::min(few, TimeToLose(kFew, by));
      many = std::min(many, TimeToLose(kMany, by));
    }
    EXPECT_LT(absl::FDivDuration(many, few), 8)
        << few << " and " << many << ", LostBy " << static_cast<int>(by);
  }
}

// The coordinator ended the stream; the member has a lease from then on to say something.
TEST(AttachedLease, AStreamThatEndsLeavesALease) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6), absl::Seconds(60)));
  h.As(members[1], AttachCall{1});
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(20), members[0]);
  h.As(members[1], AttachCall{1, /*closed=*/true, /*by_us=*/true});
  Pass(h, absl::Seconds(5), members[0]);
  EXPECT_TRUE(h.Parked(barrier));
  Pass(h, absl::Seconds(2), members[0]);
  EXPECT_FALSE(h.Parked(barrier));
}

// A silent member's stream broke: it has the grace to connect again, as others have.
TEST(AttachedLease, ABrokenStreamOfASilentMemberHasItsGrace) {
  CoreHarness h;
  GroupSpec spec = Spec(absl::Seconds(6), absl::Seconds(60));
  spec.disconnect_grace = absl::Seconds(3);
  const std::vector<TestMember> members = h.Form(spec);
  h.As(members[1], AttachCall{1});
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(20), members[0]);
  h.As(members[1], AttachCall{1, /*closed=*/true});
  Pass(h, absl::Seconds(2), members[0]);
  EXPECT_TRUE(h.Parked(barrier));
  Pass(h, absl::Seconds(2), members[0]);
  ASSERT_FALSE(h.Parked(barrier));
  EXPECT_EQ(h.Find(barrier)->context->cause.kind, CauseKind::kConnectionLost);
}

// The coordinator is stopped for `time`: its members call, and nothing is read.
void Sleep(CoreHarness& h, absl::Duration time) {
  h.core().Resume(h.now(), time);
  h.Tick();
}

TEST(ACoordinatorThatSlept, TakesNoLiveMemberForLost) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(6)));
  Pass(h, absl::Seconds(1), members[0]);
  Sleep(h, absl::Seconds(7));
  h.Advance(absl::Seconds(1));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
  EXPECT_EQ(Member(h, 1).state, MemberState::kActive);
  // Silence counts from there.
  const CallId barrier = h.As(members[0], Barrier("step"), absl::Seconds(60));
  Pass(h, absl::Seconds(5), members[0]);
  ASSERT_FALSE(h.Parked(barrier));
  EXPECT_EQ(h.Find(barrier)->context->cause.kind, CauseKind::kLeaseExpired);
}

TEST(ACoordinatorThatSlept, EndsWaitsAsPromised) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(60)));
  const CallId over = h.As(members[0], Barrier("a"), absl::Seconds(5));
  const CallId later = h.As(members[0], Barrier("b"), absl::Seconds(10));
  h.Advance(absl::Seconds(1));
  Sleep(h, absl::Seconds(7));
  ASSERT_FALSE(h.Parked(over));
  EXPECT_EQ(h.Round(over)->outcome, RoundOutcome::kTimedOut);
  EXPECT_TRUE(h.Parked(later));
  h.Advance(absl::Milliseconds(1999));
  EXPECT_TRUE(h.Parked(later));
  h.Advance(absl::Milliseconds(1));
  EXPECT_FALSE(h.Parked(later));
}

// Its connection may have given up on a coordinator that did not answer.
TEST(ACoordinatorThatSlept, GivesMembersTimeToConnectAgain) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(60)));
  h.As(members[1], AttachCall{1});
  Sleep(h, absl::Seconds(7));
  h.As(members[1], AttachCall{1, /*closed=*/true});
  h.Advance(absl::Seconds(6));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
  h.As(members[1], AttachCall{2});
  h.Advance(absl::Seconds(30));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
  // Long after, the group's own grace holds again.
  h.As(members[1], AttachCall{2, /*closed=*/true});
  h.Advance(absl::Seconds(1));
  EXPECT_EQ(Describe(h).state, GroupState::kBroken);
}

TEST(ACoordinatorThatSlept, AGraceInProgressGoesOnWhereItStood) {
  CoreHarness h;
  GroupSpec spec = Spec(absl::Seconds(60));
  spec.disconnect_grace = absl::Seconds(2);
  const std::vector<TestMember> members = h.Form(spec);
  h.As(members[1], AttachCall{1});
  h.As(members[1], AttachCall{1, /*closed=*/true});
  h.Advance(absl::Seconds(1));
  Sleep(h, absl::Seconds(7));
  h.As(members[1], AttachCall{2});
  h.Advance(absl::Seconds(5));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
}

TEST(ACoordinatorThatSlept, DoesNotBlameAMemberForItsProgress) {
  CoreHarness h;
  GroupSpec spec = Spec(absl::Seconds(60));
  spec.progress_timeout = absl::Seconds(5);
  const std::vector<TestMember> members = h.Form(spec);
  for (const TestMember& member : members) h.As(member, KeepAliveCall{1, "step"});
  Sleep(h, absl::Seconds(7));
  h.Advance(absl::Seconds(1));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
}

TEST(Progress, IsShownWithItsOperationAndAge) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(60)));
  h.As(members[1], KeepAliveCall{7, "step"});
  h.Advance(absl::Seconds(3));
  h.As(members[1], KeepAliveCall{7, "step"});
  EXPECT_EQ(Member(h, 1).progress, 7);
  EXPECT_EQ(Member(h, 1).progress_operation, "step");
  EXPECT_EQ(Member(h, 1).progress_age, absl::Seconds(3));
  EXPECT_EQ(Member(h, 0).progress_operation, "");
}

TEST(ProgressTimeout, DoesNotCountTheTimeInWhichTheGroupForms) {
  CoreHarness h;
  GroupSpec spec = Spec(absl::Seconds(60));
  spec.progress_timeout = absl::Seconds(5);
  TestMember a{"a", 1}, b{"b", 2};
  h.Join(a, spec, 0, absl::Seconds(30));
  h.Advance(absl::Seconds(10));
  h.Join(b, spec, 1, absl::Seconds(30));
  h.Advance(absl::Seconds(4));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
  h.Advance(absl::Seconds(2));
  EXPECT_NE(Describe(h).state, GroupState::kActive);
}

// The acknowledgements came while it slept: they are read after the proposer's wait has ended.
TEST(ACoordinatorThatSlept, DropsNoMemberFromAView) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(Spec(absl::Seconds(60)));
  ProposeViewCall propose;
  propose.drop_silent = true;
  const Id128 operation{1, 2};
  const CallId proposal = h.As(members[0], propose, absl::Seconds(5), operation);
  const int64_t id = Describe(h).proposal->id;
  Sleep(h, absl::Seconds(7));
  ASSERT_FALSE(h.Parked(proposal));
  EXPECT_EQ(h.Get<ViewReply>(proposal)->outcome, ViewReply::Outcome::kTimedOut);
  EXPECT_THAT(h.Get<ViewReply>(proposal)->missing.missing, ElementsAre(RankRange{1, 1}));
  const CallId acknowledged = h.As(members[1], AckViewCall{id, false, ""});
  ASSERT_FALSE(h.Parked(acknowledged));
  EXPECT_EQ(h.Get<ViewReply>(acknowledged)->outcome, ViewReply::Outcome::kCommitted);
  EXPECT_EQ(h.Get<ViewReply>(acknowledged)->world_size, 2);
  // The proposer learns of it when it repeats its call.
  const CallId again = h.As(members[0], propose, absl::Seconds(5), operation);
  ASSERT_FALSE(h.Parked(again));
  EXPECT_EQ(h.Get<ViewReply>(again)->outcome, ViewReply::Outcome::kCommitted);
}

// A key that its writer renews must outlive a sleep of the coordinator.
TEST(ACoordinatorThatSlept, KeepsKeysThatMayHaveBeenRenewed) {
  CoreHarness h;
  PutCall put;
  put.key = "heartbeat";
  put.value = "1";
  put.expiration = absl::Seconds(5);
  h.Form(2);
  h.Make(put, Caller{h.key()});
  h.Advance(absl::Seconds(1));
  Sleep(h, absl::Seconds(7));
  const CallId get = h.Make(GetCall{{"heartbeat"}}, Caller{h.key()});
  EXPECT_EQ(h.Get<GetReply>(get)->values.size(), 1);
  h.Advance(absl::Seconds(5));
  const CallId later = h.Make(GetCall{{"heartbeat"}}, Caller{h.key()});
  EXPECT_EQ(h.Get<GetReply>(later)->values.size(), 0);
}

}  // namespace
}  // namespace cohort::coordinator
