// One file, though long: members join, leave, vote on views and learn of each other in the same few
// lines of set-up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/threads/thread_time.h"
#include "coordinator/core/testing/core_harness.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

GroupInfo Describe(CoreHarness& h) {
  return h.Get<GetGroupReply>(h.Make(GetGroupCall{}, Caller{}))->group;
}

TEST(Join, WaitsForAllRanksAndNamesTheMissing) {
  CoreHarness h;
  TestMember a{"a", 1}, c{"c", 3};
  const CallId first = h.Join(a, CoreHarness::Fixed(4), 0, absl::Seconds(10));
  const CallId third = h.Join(c, CoreHarness::Fixed(4), 2, absl::Seconds(20));
  h.Advance(absl::Seconds(10));
  const auto* reply = h.Get<JoinReply>(first);
  ASSERT_NE(reply, nullptr);
  EXPECT_TRUE(reply->timed_out);
  EXPECT_THAT(reply->missing.missing, ElementsAre(RankRange{1, 1}, RankRange{3, 3}));
  EXPECT_TRUE(h.Parked(third));  // each member has its own timeout
}

TEST(Join, AssignsFreeRanksInOrderOfArrivalAroundTheWishes) {
  CoreHarness h;
  std::vector<TestMember> members = {{"x", 1}, {"y", 2}, {"z", 3}};
  std::vector<CallId> joins = {h.Join(members[0], CoreHarness::Fixed(3), std::nullopt)};
  h.Advance(absl::Seconds(1));
  joins.push_back(h.Join(members[1], CoreHarness::Fixed(3), std::nullopt));
  joins.push_back(h.Join(members[2], CoreHarness::Fixed(3), 0));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(h.JoinAnswered(members[i], joins[i]));
  EXPECT_EQ(members[0].rank, 1);
  EXPECT_EQ(members[1].rank, 2);
  EXPECT_EQ(members[2].rank, 0);
}

TEST(Join, RefusesATakenRankNamingItsHolder) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  TestMember thief{"thief", 9};
  const CallId join = h.Join(thief, CoreHarness::Fixed(2), 1);
  EXPECT_EQ(h.StatusOf(join).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(h.StatusOf(join).message()), HasSubstr("w1"));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
}

TEST(Join, RepeatAfterALostAnswerGivesTheSameRank) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  TestMember again = members[1];
  ASSERT_TRUE(h.JoinAnswered(again, h.Join(again, CoreHarness::Fixed(2), 1)));
  EXPECT_EQ(again.session, members[1].session);
  EXPECT_EQ(again.generation, 1);
}

TEST(Join, ACancelledJoinTakesItsConfirmationBack) {
  CoreHarness h;
  TestMember a{"a", 1}, b{"b", 2};
  const CallId gone = h.Join(a, CoreHarness::Fixed(2), 0);
  h.Cancel(gone);
  const CallId waits = h.Join(b, CoreHarness::Fixed(2), 1);
  EXPECT_TRUE(h.Parked(waits));  // a is not there to learn that the view is complete
  const CallId back = h.Join(a, CoreHarness::Fixed(2), 0);
  EXPECT_TRUE(h.JoinAnswered(a, back));
  EXPECT_TRUE(h.JoinAnswered(b, waits));
}

// Until a member has a rank and an open stream, only its call shows that it is alive.
TEST(Join, AMemberWhoseCallEndsLosesItsRankSoonUnlessItCallsAgain) {
  CoreHarness h;
  TestMember member{"a", 1};
  const CallId first = h.Join(member, CoreHarness::Fixed(2), 0);
  h.Cancel(first);
  h.Advance(absl::Milliseconds(400));
  const CallId again = h.Join(member, CoreHarness::Fixed(2), 0);
  h.Advance(absl::Seconds(5));
  EXPECT_TRUE(h.Parked(again));
  h.Cancel(again);
  h.Advance(absl::Milliseconds(501));
  TestMember other{"b", 1};
  EXPECT_TRUE(h.Parked(h.Join(other, CoreHarness::Fixed(2), 0)));
}

TEST(Join, ElasticGroupGoesAheadAfterItsWindow) {
  CoreHarness h;
  GroupSpec spec;
  spec.min_members = 2;
  spec.max_members = 8;
  spec.join_window = absl::Seconds(5);
  TestMember a{"a", 1}, b{"b", 2}, c{"c", 3};
  const CallId ja = h.Join(a, spec, std::nullopt);
  h.Advance(absl::Seconds(20));
  EXPECT_TRUE(h.Parked(ja));  // below the minimum for ever
  const CallId jb = h.Join(b, spec, std::nullopt);
  h.Advance(absl::Seconds(4));
  const CallId jc = h.Join(c, spec, std::nullopt);
  h.Advance(absl::Seconds(4));
  EXPECT_TRUE(h.Parked(jb));  // the window counts from the last arrival
  h.Advance(absl::Seconds(1));
  ASSERT_TRUE(h.JoinAnswered(a, ja) && h.JoinAnswered(b, jb) && h.JoinAnswered(c, jc));
  EXPECT_EQ(c.world_size, 3);
}

// There are more of them than slots.
TEST(Join, SparesCompleteAGenerationWhoseMissingMemberGoes) {
  for (const bool leaves : {true, false}) {
    CoreHarness h;
    std::vector<TestMember> members = h.Form(3);
    std::vector<TestMember> spares = {{"first", 7}, {"second", 8}, {"third", 9}};
    std::vector<CallId> joins;
    for (TestMember& spare : spares) {
      joins.push_back(h.Join(spare, CoreHarness::Fixed(3), std::nullopt));
      h.Advance(absl::Milliseconds(1));
    }
    h.Make(EvictCall{"w2", "test"}, Caller{});
    const CallId again = h.Join(members[0], CoreHarness::Fixed(3), 0);
    EXPECT_TRUE(h.Parked(again)) << "member w1 has not joined again";
    leaves ? h.As(members[1], LeaveCall{}) : h.Make(EvictCall{"w1", "test"}, Caller{});
    ASSERT_TRUE(h.JoinAnswered(members[0], again));
    ASSERT_TRUE(h.JoinAnswered(spares[0], joins[0]) && h.JoinAnswered(spares[1], joins[1]));
    EXPECT_EQ(spares[1].rank, 2);
    EXPECT_TRUE(h.Parked(joins[2]));
  }
}

TEST(Leave, EndsOnlyTheWaitsThatNeedTheLeaver) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  SendCall send;
  send.destination = 1;
  send.value.bytes = "farewell";
  h.As(members[2], send);
  const CallId from2 = h.As(members[0], ReceiveCall{2, ""});
  const CallId from1 = h.As(members[0], ReceiveCall{1, ""});
  EnterRoundCall all, two;
  two.name = "two";
  two.participants = {{0, 1}};
  const CallId needs_all = h.As(members[0], all);
  const CallId needs_two = h.As(members[0], two);
  h.As(members[2], LeaveCall{"done"});
  EXPECT_EQ(h.StatusOf(from2).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.Find(from2)->context->cause.kind, CauseKind::kLeft);
  EXPECT_EQ(h.StatusOf(needs_all).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(h.Parked(from1));
  EXPECT_TRUE(h.Parked(needs_two));
  // Objects that it sent stay readable; later receives from it end at once.
  EXPECT_EQ(h.Get<ReceiveReply>(h.As(members[1], ReceiveCall{2, ""}))->payload.bytes(), "farewell");
  EXPECT_EQ(h.StatusOf(h.As(members[1], ReceiveCall{2, ""})).code(), absl::StatusCode::kAborted);
  h.As(members[1], two);
  EXPECT_EQ(h.Round(needs_two)->outcome, RoundOutcome::kReleased);
}

TEST(Leave, TheLeaveOfTheLastMemberClosesTheGroupAndTheNameGoesOnCounting) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  h.As(members[0], LeaveCall{});
  h.As(members[1], LeaveCall{});
  EXPECT_EQ(h.StatusOf(h.Make(GetGroupCall{}, Caller{})).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(h.core().Stats().group_count, 0);
  std::vector<TestMember> again = h.Form(2);
  EXPECT_EQ(again[0].generation, 2);
  h.Restart();
  h.As(again[0], CloseGroupCall{});
  h.Restart();
  EXPECT_EQ(h.Form(2)[0].generation, 3);
}

TEST(Close, TheErrorSaysWhoClosedTheGroupWhenAndWhy) {
  CoreHarness h;
  const auto asked = [&h] { return h.Make(GetGroupCall{}, Caller{}); };
  const auto text = [&h](CallId id) { return std::string(h.StatusOf(id).message()); };
  EXPECT_EQ(text(asked()), "there is no group g");
  h.Form(1);
  h.Make(CloseGroupCall{"job is over"}, Caller{});
  h.Advance(absl::Milliseconds(3207));
  const CallId after = asked();
  EXPECT_EQ(text(after),
            "there is no group g; it was closed 3.207s ago, in generation 1: job is over");
  EXPECT_EQ(h.Find(after)->context->cause.kind, CauseKind::kClosed);
  EXPECT_EQ(h.Find(after)->context->cause.at, h.now() - absl::Milliseconds(3207));
  std::vector<TestMember> members = h.Form(1);
  h.As(members[0], LeaveCall{});
  h.Advance(absl::Minutes(61));
  EXPECT_EQ(
      text(asked()),
      "there is no group g; it was closed 1h1m ago, in generation 2, by member w0 (rank 0) on "
      "host-w0: the last member left");
  // After a restart, the coordinator knows only that the group was closed before.
  h.Restart();
  EXPECT_EQ(text(asked()),
            "there is no group g; it was closed before the coordinator's last start, in generation "
            "2, by member w0 (rank 0) on host-w0: the last member left");
}

TEST(ReportFate, ALossEndsOnlyTheWaitsThatNeedIt) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(3);
  spec.fate = Fate::kReport;
  std::vector<TestMember> members = h.Form(spec);
  const CallId from2 = h.As(members[0], ReceiveCall{2, ""}, absl::Seconds(300));
  const CallId from1 = h.As(members[0], ReceiveCall{1, ""}, absl::Seconds(300));
  h.AdvanceAlive(absl::Seconds(31), {members[0], members[1]});
  EXPECT_EQ(h.StatusOf(from2).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(h.Parked(from1));
  EXPECT_EQ(Describe(h).state, GroupState::kActive);
  EXPECT_EQ(Describe(h).members[2].state, MemberState::kLost);
}

TEST(View, RejectionAndSilenceAreNamed) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  CallId propose = h.As(members[0], ProposeViewCall{{{2, 2}}, {}, false}, absl::Seconds(10));
  const int64_t refused = Describe(h).proposal->id;
  h.As(members[1], AckViewCall{refused, true, "busy"});
  EXPECT_EQ(h.Get<ViewReply>(propose)->outcome, ViewReply::Outcome::kRefused);
  EXPECT_EQ(h.Get<ViewReply>(propose)->cause.member, "w1");
  propose = h.As(members[0], ProposeViewCall{{{2, 2}}, {}, false}, absl::Seconds(10));
  h.Advance(absl::Seconds(10));
  EXPECT_EQ(h.Get<ViewReply>(propose)->outcome, ViewReply::Outcome::kTimedOut);
  EXPECT_THAT(h.Get<ViewReply>(propose)->missing.missing, ElementsAre(RankRange{1, 1}));
  EXPECT_EQ(Describe(h).generation, 1);
  propose = h.As(members[0], ProposeViewCall{{{2, 2}}, {}, true}, absl::Seconds(10));
  h.Advance(absl::Seconds(10));
  EXPECT_EQ(h.Get<ViewReply>(propose)->outcome, ViewReply::Outcome::kCommitted);
  EXPECT_EQ(h.Get<ViewReply>(propose)->world_size, 1);
  const CallId removed = h.As(members[2], KeepAliveCall{});
  EXPECT_EQ(h.Find(removed)->context->cause.kind, CauseKind::kViewChanged);
}

TEST(View, SilentMembersStayIfNoMemberWouldRemain) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId propose = h.As(members[0], ProposeViewCall{{{0, 0}}, {}, true}, absl::Seconds(10));
  h.Advance(absl::Seconds(10));
  EXPECT_EQ(h.Get<ViewReply>(propose)->outcome, ViewReply::Outcome::kTimedOut);
  EXPECT_THAT(h.Get<ViewReply>(propose)->missing.missing, ElementsAre(RankRange{1, 1}));
  EXPECT_EQ(Describe(h).world_size, 2);
  EXPECT_EQ(Describe(h).generation, 1);
}

TEST(View, ReplacesAndGrowsKeepingTheOrderOfRanks) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  TestMember spare{"spare", 7}, extra{"extra", 8};
  const CallId join_spare = h.Join(spare, CoreHarness::Fixed(3), std::nullopt);
  const CallId join_extra = h.Join(extra, CoreHarness::Fixed(3), std::nullopt);
  EXPECT_TRUE(h.Parked(join_spare));
  const CallId parked = h.As(members[2], EnterRoundCall{});
  const CallId propose =
      h.As(members[0], ProposeViewCall{{{1, 1}}, {"spare", "extra"}, false}, absl::Seconds(10));
  const CallId ack = h.As(members[2], AckViewCall{Describe(h).proposal->id, false, ""});
  ASSERT_TRUE(h.JoinAnswered(spare, join_spare) && h.JoinAnswered(extra, join_extra));
  EXPECT_EQ(spare.rank, 1);
  EXPECT_EQ(extra.rank, 3);
  EXPECT_EQ(h.Get<ViewReply>(ack)->rank, 2);
  EXPECT_EQ(h.Get<ViewReply>(propose)->world_size, 4);
  EXPECT_EQ(spare.generation, 2);
  EXPECT_EQ(h.Find(parked)->context->cause.kind, CauseKind::kViewChanged);
}

// Member w2 becomes rank 1 after w1 is lost. It inherits neither the rounds nor the message of w1.
TEST(View, LeavesNothingOfTheGenerationBefore) {
  for (const bool restarts : {false, true}) {
    SCOPED_TRACE(restarts ? "restarts" : "runs on");
    CoreHarness h;
    GroupSpec spec = CoreHarness::Fixed(3);
    spec.fate = Fate::kReport;
    std::vector<TestMember> members = h.Form(spec);
    EnterRoundCall step;
    step.name = "step";
    for (const TestMember& member : members) h.As(member, step);
    SendCall send;
    send.destination = 0;
    send.value.bytes = "old";
    h.As(members[1], send);
    h.As(members[0], PublishIdsCall{"world", {"old"}});
    h.Make(EvictCall{"w1", "test"}, Caller{});
    const CallId propose =
        h.As(members[0], ProposeViewCall{{{1, 1}}, {}, false}, absl::Seconds(10));
    h.As(members[2], AckViewCall{Describe(h).proposal->id, false, ""});
    ASSERT_NE(h.Get<ViewReply>(propose), nullptr) << h.StatusOf(propose);
    ASSERT_EQ(h.Get<ViewReply>(propose)->outcome, ViewReply::Outcome::kCommitted);
    if (restarts) h.Restart();
    members = {members[0], members[2]};
    for (TestMember& member : members) member.generation = 2;
    ASSERT_EQ(Describe(h).world_size, 2);
    EXPECT_EQ(Describe(h).members[1].name, "w2");

    EXPECT_TRUE(h.Parked(h.As(members[1], FetchIdsCall{"world"})));
    EXPECT_TRUE(h.Parked(h.As(members[0], ReceiveCall{1, ""})));
    const CallId first = h.As(members[0], step), second = h.As(members[1], step);
    for (const CallId call : {first, second}) {
      ASSERT_NE(h.Round(call), nullptr) << h.StatusOf(call);
      EXPECT_EQ(h.Round(call)->outcome, RoundOutcome::kReleased);
      EXPECT_EQ(h.Round(call)->number, 1);
    }
  }
}

TEST(View, AProposalDiesWithItsProposer) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  h.As(members[0], ProposeViewCall{{{2, 2}}, {}, false}, absl::Seconds(300));
  const CallId ack_waits = h.As(members[1], AckViewCall{0, false, ""});
  EXPECT_EQ(h.StatusOf(ack_waits).code(), absl::StatusCode::kNotFound);
  h.Make(EvictCall{"w0", "test"}, Caller{});
  EXPECT_FALSE(Describe(h).proposal.has_value());
  EXPECT_EQ(Describe(h).state, GroupState::kBroken);
  EXPECT_EQ(Describe(h).cause.kind, CauseKind::kEvicted);
}

TEST(View, AProposalDiesWithACandidateThatItAdds) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  TestMember spare{"spare", 7};
  h.Join(spare, CoreHarness::Fixed(2), std::nullopt);
  const CallId propose =
      h.As(members[0], ProposeViewCall{{}, {"spare"}, false}, absl::Seconds(300));
  ASSERT_TRUE(h.Parked(propose));
  h.Make(EvictCall{"spare", "test"}, Caller{});
  EXPECT_FALSE(Describe(h).proposal.has_value());
  EXPECT_EQ(h.Get<ViewReply>(propose)->outcome, ViewReply::Outcome::kRefused);
  EXPECT_EQ(Describe(h).generation, 1);
}

TEST(Watch, ResumesWithoutGapsAndSaysWhenItCannot) {
  Limits limits;
  limits.max_event_log = 4;
  CoreHarness h(limits);
  std::vector<TestMember> members = h.Form(2);
  const int64_t start = Describe(h).revision;
  for (int i = 0; i < 3; ++i) h.As(members[0], ReportErrorCall{absl::StrCat("e", i), false, {}});
  h.Advance(absl::Milliseconds(50));
  const auto* batch = h.Get<WatchGroupReply>(h.Make(WatchGroupCall{start}, Caller{}));
  ASSERT_NE(batch, nullptr);
  ASSERT_EQ(batch->events.size(), 3u);
  EXPECT_EQ(batch->events[2].cause.detail, "e2");
  EXPECT_TRUE(h.Parked(h.Make(WatchGroupCall{batch->revision}, Caller{})));
  for (int i = 0; i < 3; ++i) h.As(members[0], ReportErrorCall{"more", false, {}});
  EXPECT_EQ(h.StatusOf(h.Make(WatchGroupCall{start}, Caller{})).code(),
            absl::StatusCode::kOutOfRange);
  EXPECT_EQ(h.StatusOf(h.Make(WatchGroupCall{int64_t{1} << 60}, Caller{})).code(),
            absl::StatusCode::kOutOfRange);
}

TEST(Watch, GetsALoneEventImmediatelyAndManyEventsTogether) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(6);
  spec.fate = Fate::kReport;
  std::vector<TestMember> members = h.Form(spec);
  h.Advance(absl::Seconds(1));
  const CallId first = h.Make(WatchGroupCall{0}, Caller{});
  h.As(members[1], LeaveCall{});
  const auto* alone = h.Get<WatchGroupReply>(first);
  ASSERT_NE(alone, nullptr);
  EXPECT_EQ(alone->events.size(), 1u);
  const CallId second = h.Make(WatchGroupCall{alone->revision}, Caller{});
  for (int rank : {2, 3, 4}) h.As(members[rank], LeaveCall{});
  EXPECT_TRUE(h.Parked(second));
  EXPECT_TRUE(h.Parked(h.Make(WatchGroupCall{alone->revision}, Caller{}, absl::Milliseconds(70))));
  h.Advance(absl::Milliseconds(50));
  const auto* many = h.Get<WatchGroupReply>(second);
  ASSERT_NE(many, nullptr);
  ASSERT_EQ(many->events.size(), 3u);
  EXPECT_EQ(many->events[2].member, "w4");
  EXPECT_EQ(many->revision, Describe(h).revision);
}

// The coordinator collects events for 50 ms; a watch may begin in that time.
TEST(Watch, GetsOnlyTheEventsAfterItsRevision) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  h.Advance(absl::Seconds(1));
  h.As(members[1], ReportErrorCall{"alone", false, {}});
  const int64_t delivered = Describe(h).revision;
  h.As(members[1], ReportErrorCall{"collected", false, {}});
  const CallId from_now = h.Make(WatchGroupCall{0}, Caller{});
  const CallId from_delivered = h.Make(WatchGroupCall{delivered}, Caller{});
  EXPECT_TRUE(h.Parked(from_delivered));
  h.Advance(absl::Milliseconds(50));
  ASSERT_NE(h.Get<WatchGroupReply>(from_delivered), nullptr);
  ASSERT_EQ(h.Get<WatchGroupReply>(from_delivered)->events.size(), 1u);
  EXPECT_EQ(h.Get<WatchGroupReply>(from_delivered)->events[0].cause.detail, "collected");
  EXPECT_TRUE(h.Parked(from_now));
  h.As(members[1], ReportErrorCall{"later", false, {}});
  h.Advance(absl::Milliseconds(50));
  ASSERT_NE(h.Get<WatchGroupReply>(from_now), nullptr);
  ASSERT_EQ(h.Get<WatchGroupReply>(from_now)->events.size(), 1u);
  EXPECT_EQ(h.Get<WatchGroupReply>(from_now)->events[0].cause.detail, "later");
}

TEST(Watch, GetsEventsThatNeedActionImmediately) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(4);
  const CallId watch = h.Make(WatchGroupCall{0}, Caller{});
  h.As(members[1], ReportErrorCall{"odd", false, {}});
  EXPECT_TRUE(h.Parked(watch));
  h.Make(EvictCall{"w2", "test"}, Caller{});
  const auto* watched = h.Get<WatchGroupReply>(watch);
  ASSERT_NE(watched, nullptr);
  ASSERT_EQ(watched->events.size(), 3u);
  EXPECT_EQ(watched->events[0].kind, EventKind::kErrorReported);
  EXPECT_EQ(watched->events[1].kind, EventKind::kLost);
  EXPECT_EQ(watched->events[2].kind, EventKind::kBroken);
  EXPECT_FALSE(watched->closed);
  const CallId last = h.Make(WatchGroupCall{watched->revision}, Caller{});
  h.Make(CloseGroupCall{}, Caller{});
  EXPECT_TRUE(h.Get<WatchGroupReply>(last)->closed);
}

TEST(Watch, AWatchWhoseWaitEndsGetsTheUndeliveredEvents) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId watch = h.Make(WatchGroupCall{0}, Caller{}, absl::Milliseconds(10));
  h.As(members[1], ReportErrorCall{"odd", false, {}});
  h.Advance(absl::Milliseconds(10));
  EXPECT_EQ(h.Get<WatchGroupReply>(watch)->events.size(), 1u);
}

TEST(Watch, MissesNothingWhenTheLogIsShorterThanAStep) {
  Limits limits;
  limits.max_event_log = 2;
  CoreHarness h(limits);
  std::vector<TestMember> members = h.Form(2);
  CallId watch = h.Make(WatchGroupCall{0}, Caller{});
  int received = 0;
  for (int i = 0; i < 7; ++i) {
    h.As(members[0], ReportErrorCall{absl::StrCat("e", i), false, {}});
    const auto* watched = h.Get<WatchGroupReply>(watch);
    if (watched == nullptr) continue;
    for (const GroupEvent& event : watched->events)
      EXPECT_EQ(event.cause.detail, absl::StrCat("e", received++));
    watch = h.Make(WatchGroupCall{watched->revision}, Caller{});
  }
  EXPECT_GE(received, 6);
}

TEST(Watch, IsNotCountedOrListedAmongTheWaits) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  EXPECT_TRUE(h.Parked(h.Make(WatchGroupCall{Describe(h).revision}, Caller{}, absl::Seconds(60))));
  EXPECT_TRUE(h.Parked(h.As(members[0], WatchKeysCall{"k/"}, absl::Seconds(60))));
  EXPECT_EQ(Describe(h).waiter_count, 0);
  EXPECT_EQ(h.Get<DumpWaitsReply>(h.Make(DumpWaitsCall{}, Caller{}))->total_count, 0);

  GetCall get;
  get.keys = {"k/absent"};
  get.wait = true;
  EXPECT_TRUE(h.Parked(h.As(members[0], std::move(get), absl::Seconds(60))));
  EXPECT_TRUE(h.Parked(h.As(members[1], ReceiveCall{0, ""}, absl::Seconds(60))));
  EXPECT_EQ(Describe(h).waiter_count, 2);
  EXPECT_EQ(h.Get<StatsReply>(h.Make(StatsCall{}, Caller{}))->waiter_count, 2);
  const auto* dump = h.Get<DumpWaitsReply>(h.Make(DumpWaitsCall{}, Caller{}));
  EXPECT_EQ(dump->total_count, 2);
  EXPECT_EQ(dump->calls.size(), 2u);
}

TEST(DumpWaits, ListsWhatWaitsInTheTenantsOwnStore) {
  CoreHarness h;
  const Caller own{GroupKey{"default", ""}, 0, {}, {}, {}};
  const auto dump = [&] { return *h.Get<DumpWaitsReply>(h.Make(DumpWaitsCall{}, own)); };
  EXPECT_EQ(dump().total_count, 0) << "there is no store yet";
  GetCall get;
  get.keys = {"k/absent"};
  get.wait = true;
  EXPECT_TRUE(h.Parked(h.Make(std::move(get), own, absl::Seconds(60))));
  EXPECT_TRUE(h.Parked(h.Make(WatchKeysCall{"k/"}, own, absl::Seconds(60))));
  h.Advance(absl::Seconds(5));
  const DumpWaitsReply reply = dump();
  EXPECT_EQ(reply.total_count, 1) << "a watch is no wait";
  ASSERT_EQ(reply.calls.size(), 1u);
  EXPECT_EQ(reply.calls[0].group, "");
  EXPECT_EQ(reply.calls[0].operation, "get k/absent");
  EXPECT_EQ(reply.calls[0].rank, -1);
  EXPECT_EQ(reply.calls[0].age, absl::Seconds(5));
  EXPECT_EQ(reply.calls[0].remaining, absl::Seconds(55));
  const Caller other{GroupKey{"other", ""}, 0, {}, {}, {}};
  EXPECT_EQ(h.Get<DumpWaitsReply>(h.Make(DumpWaitsCall{}, other))->total_count, 0);
}

// The processor time in which a tenant lists the waits of its groups and of its own store, while
// `others` calls wait in another tenant.
absl::Duration TimeToDump(int others) {
  CoreHarness h;
  const auto wait_for_key = [&](const GroupKey& key) {
    GetCall get;
    get.keys = {"absent"};
    get.wait = true;
    return h.Parked(h.Make(std::move(get), Caller{key, 0, {}, {}, {}}, absl::Hours(1)));
  };
  const GroupKey own{"default", ""};
  EXPECT_TRUE(wait_for_key(own));
  std::vector<GroupKey> groups;
  for (int i = 0; i < 10; ++i) {
    groups.push_back(GroupKey{"default", absl::StrCat("g", i)});
    h.Make(CreateGroupCall{CoreHarness::Fixed(2)}, Caller{groups.back(), 0, {}, {}, {}});
    EXPECT_TRUE(wait_for_key(groups.back()));
  }
  for (int i = 0; i < others; ++i) {
    EXPECT_TRUE(wait_for_key(GroupKey{"other", ""}));
  }
  groups.push_back(own);
  absl::Duration least = absl::InfiniteDuration();
  for (int attempt = 0; attempt < 20; ++attempt) {
    const absl::Duration begin = ThreadTime();
    for (const GroupKey& key : groups) {
      const CallId dump = h.Make(DumpWaitsCall{}, Caller{key, 0, {}, {}, {}});
      EXPECT_EQ(h.Get<DumpWaitsReply>(dump)->total_count, 1) << key.group;
    }
    least = std::min(least, ThreadTime() - begin);
  }
  return least;
}

// Once, each group of the tenant looked at all waits of all tenants.
TEST(DumpWaits, TimeDoesNotGrowWithTheWaitsOfOthers) {
  const absl::Duration few = TimeToDump(1000);
  const absl::Duration many = TimeToDump(16000);
  EXPECT_LT(absl::FDivDuration(many, few), 4) << few << " and " << many;
}

TEST(UniqueIds, AreFencedByGenerationAndFreedWhenFetched) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId waits = h.As(members[1], FetchIdsCall{"world"});
  EXPECT_TRUE(h.Parked(waits));
  h.As(members[0], PublishIdsCall{"world", {"secret-1"}});
  EXPECT_THAT(h.Get<FetchIdsReply>(waits)->ids, ElementsAre("secret-1"));
  EXPECT_EQ(h.StatusOf(h.As(members[0], PublishIdsCall{"world", {"secret-2"}})).code(),
            absl::StatusCode::kAlreadyExists);
  h.As(members[1], KeepAliveCall{}, absl::Seconds(1), {}, {h.Get<FetchIdsReply>(waits)->receipt});
  EXPECT_EQ(h.StatusOf(h.As(members[1], FetchIdsCall{"world"})).code(),
            absl::StatusCode::kDataLoss);
  // All members restart twice, quickly: no id of an older generation is ever seen.
  for (int generation = 2; generation <= 3; ++generation) {
    for (TestMember& member : members) member.incarnation += 1000, member.session = Id128{};
    h.Reform(members, CoreHarness::Fixed(2));
    ASSERT_EQ(members[0].generation, generation);
    EXPECT_TRUE(h.Parked(h.As(members[1], FetchIdsCall{"world"}))) << generation;
    if (generation == 2) h.As(members[0], PublishIdsCall{"world", {"second generation"}});
  }
}

TEST(WhoIsMissing, ShowsEveryOpenWaitOldestFirst) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(4);
  EnterRoundCall barrier;
  barrier.name = "step";
  h.As(members[0], barrier, absl::Seconds(60));
  h.Advance(absl::Seconds(3));
  h.As(members[1], ReceiveCall{2, "grads"}, absl::Seconds(60));
  h.As(members[3], ReportInitCall{"world", InitPhase::kCallingInit, "ring 0"});
  const auto* report = h.Get<WhoIsMissingReply>(h.Make(WhoIsMissingCall{}, Caller{}));
  ASSERT_EQ(report->waits.size(), 2u);
  EXPECT_EQ(report->waits[0].operation, "barrier \"step\" #1");
  EXPECT_THAT(report->waits[0].missing.missing, ElementsAre(RankRange{1, 3}));
  EXPECT_EQ(report->waits[0].age, absl::Seconds(3));
  EXPECT_THAT(report->waits[1].operation, HasSubstr("tag \"grads\""));
  ASSERT_EQ(report->inits.size(), 1u);
  EXPECT_EQ(report->inits[0].ranks[3].phase, "calling_init");
  const auto* dump = h.Get<DumpWaitsReply>(h.Make(DumpWaitsCall{}, Caller{}));
  ASSERT_EQ(dump->calls.size(), 2u);
  EXPECT_EQ(dump->calls[0].member, "w0");
  EXPECT_THAT(dump->calls[0].waits_on, ElementsAre(RankRange{1, 3}));
}

TEST(Drain, RefusesJoinsNotifiesWatchersAndReleasesAll) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId barrier = h.As(members[0], EnterRoundCall{});
  const CallId watch = h.Make(WatchGroupCall{0}, Caller{}, absl::Seconds(60));
  Effects effects;
  h.core().SetDraining(h.now(), true, effects);
  ASSERT_EQ(effects.replies.size(), 1u);
  EXPECT_EQ(effects.replies[0].id, watch);
  TestMember late{"late", 5};
  EXPECT_EQ(h.StatusOf(h.Join(late, CoreHarness::Fixed(2), std::nullopt)).code(),
            absl::StatusCode::kUnavailable);
  effects = Effects{};
  h.core().ReleaseAll(h.now(), effects);
  ASSERT_EQ(effects.replies.size(), 1u);
  EXPECT_EQ(effects.replies[0].id, barrier);
  EXPECT_EQ(effects.replies[0].status.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(h.core().Stats().waiter_count, 0);
}

}  // namespace
}  // namespace cohort::coordinator
