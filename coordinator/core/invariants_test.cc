// The invariants C1 to C6 of the control plane, each as a story. C7 to C9, about failures:
// invariants_fault_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

Id128 Op(uint64_t n) { return Id128{0x0f, n}; }

TEST(InvariantC1, OldGenerationAndReplacedIncarnationAreAborted) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  ASSERT_EQ(members[2].generation, 1);
  h.As(members[0], Send(1, "of the first incarnation"));
  // w1 comes back as a new process.
  TestMember again = members[1];
  again.incarnation = 999;
  again.session = Id128{};
  const CallId join = h.Join(again, CoreHarness::Fixed(3), 1);
  EXPECT_TRUE(h.Parked(join));

  const CallId replaced = h.As(members[1], Receive(0));
  EXPECT_EQ(h.StatusOf(replaced).code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(h.StatusOf(replaced).message()), HasSubstr("w1 (rank 1)"));
  const CallId survivor = h.As(members[0], Barrier());
  EXPECT_EQ(h.StatusOf(survivor).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.Find(survivor)->context->cause.kind, CauseKind::kReplaced);

  const CallId join0 = h.Join(members[0], CoreHarness::Fixed(3), 0);
  const CallId join2 = h.Join(members[2], CoreHarness::Fixed(3), 2);
  ASSERT_TRUE(h.JoinAnswered(again, join));
  ASSERT_TRUE(h.JoinAnswered(members[0], join0));
  ASSERT_TRUE(h.JoinAnswered(members[2], join2));
  EXPECT_EQ(again.generation, 2);
  // The object of the first incarnation is not there.
  const CallId receive = h.As(again, Receive(0), absl::Seconds(1));
  EXPECT_TRUE(h.Parked(receive));
  // A late Join of the old process does not win.
  TestMember late = again;
  late.incarnation = 101;
  late.session = Id128{};
  EXPECT_EQ(h.StatusOf(h.Join(late, CoreHarness::Fixed(3), 1)).code(), absl::StatusCode::kAborted);
}

TEST(InvariantC2, EachCollectiveStepIsOneCallPerMember) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(4);
  std::vector<CallId> calls;
  for (const TestMember& member : members) {
    calls.push_back(
        h.As(member, Round(RoundKind::kAllGather, "", absl::StrCat("of ", member.rank))));
  }
  for (CallId id : calls) {
    const auto* reply = h.Get<RoundReply>(id);
    ASSERT_NE(reply, nullptr);
    ASSERT_EQ(reply->end->values.size(), 4u);
    EXPECT_EQ(reply->end->values[3].bytes(), "of 3");
    EXPECT_EQ(reply->end, h.Get<RoundReply>(calls[0])->end);  // one object for all
  }
}

TEST(InvariantC3, BarriersAreNumberedAndLeaveNothingBehind) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  const size_t rows_of_one = [&] {
    for (const TestMember& member : members) h.As(member, Barrier("step"));
    return h.journal_rows();
  }();
  for (int number = 2; number <= 1000; ++number) {
    CallId last = 0;
    for (const TestMember& member : members) last = h.As(member, Barrier("step"));
    ASSERT_EQ(h.Round(last)->outcome, RoundOutcome::kReleased);
    ASSERT_EQ(h.Round(last)->number, number);
    h.ForgetReplies();
  }
  EXPECT_EQ(h.journal_rows(), rows_of_one);
  EXPECT_EQ(h.core().Stats().waiter_count, 0);
  EXPECT_EQ(h.core().Stats().bytes_held, 0);
  const CallId stats = h.As(members[0], StatsCall{});
  EXPECT_EQ(h.Get<StatsReply>(stats)->open_round_count, 0);
  EXPECT_EQ(h.Get<StatsReply>(stats)->barriers_released, 1000);
}

TEST(InvariantC3, EachNameOfItsOwnStaysBounded) {
  Limits limits;
  limits.max_round_names = 8;
  CoreHarness h(limits);
  std::vector<TestMember> members = h.Form(2);
  for (int step = 0; step < 1000; ++step) {
    CallId last = 0;
    for (const TestMember& member : members)
      last = h.As(member, Barrier(absl::StrCat("step-", step)));
    ASSERT_EQ(h.Round(last)->outcome, RoundOutcome::kReleased);
  }
  const CallId stats = h.As(members[0], StatsCall{});
  EXPECT_EQ(h.Get<StatsReply>(stats)->round_name_count, 8);
}

TEST(InvariantC4, AnEndedWaitNamesTheMissingRanksToAll) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(8);
  const CallId first = h.As(members[5], Barrier("step"), absl::Seconds(10));
  h.Advance(absl::Seconds(2));
  const CallId second = h.As(members[0], Barrier("step"), absl::Seconds(10));
  h.Advance(absl::Seconds(8));
  for (CallId id : {first, second}) {  // ended for all, also for the one with time left
    const RoundEnd* end = h.Round(id);
    ASSERT_NE(end, nullptr);
    EXPECT_EQ(end->outcome, RoundOutcome::kTimedOut);
    EXPECT_THAT(end->missing.missing, ElementsAre(RankRange{1, 4}, RankRange{6, 7}));
    EXPECT_EQ(end->missing.first_rank, 5);
    EXPECT_EQ(end->missing.last_rank, 0);
    EXPECT_EQ(end->missing.since_first, absl::Seconds(10));
    EXPECT_EQ(end->missing.skew, absl::Seconds(2));
    ASSERT_EQ(end->missing.details.size(), 6u);
    EXPECT_EQ(end->missing.details[0].member, "w1");
    EXPECT_EQ(end->missing.details[0].host, "host-w1");
  }
  // A member that calls that number later gets its outcome and does not wait alone.
  EnterRoundCall late = Barrier("step");
  late.number = 1;
  const CallId too_late = h.As(members[1], late);
  ASSERT_FALSE(h.Parked(too_late));
  EXPECT_EQ(h.Round(too_late)->outcome, RoundOutcome::kTimedOut);
  EXPECT_EQ(h.Round(too_late)->next_number, 2);
  EXPECT_THAT(h.Round(too_late)->reason, HasSubstr("timed out before rank 1 came"));
}

TEST(InvariantC5, ObjectsGoWithTheirReadersOrExpire) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  h.As(members[0], Send(2, "a"));
  h.As(members[1], Send(2, "b"));
  h.As(members[0], Send(2, std::string(1000, 'x'), "never read"));
  EXPECT_EQ(h.core().Stats().bytes_held, 1002);
  // Two senders to one receiver do not collide.
  const CallId from1 = h.As(members[2], Receive(1), absl::Seconds(1), Op(1));
  const CallId from0 = h.As(members[2], Receive(0), absl::Seconds(1), Op(2));
  EXPECT_EQ(h.Get<ReceiveReply>(from1)->payload.bytes(), "b");
  EXPECT_EQ(h.Get<ReceiveReply>(from0)->payload.bytes(), "a");
  const std::vector<int64_t> receipts = {h.Get<ReceiveReply>(from0)->receipt,
                                         h.Get<ReceiveReply>(from1)->receipt};
  h.ForgetReplies();
  h.As(members[2], KeepAliveCall{}, absl::Seconds(1), Id128{}, receipts);
  EXPECT_EQ(h.core().Stats().bytes_held, 1000);
  // The sender dies. Its object expires without any call, and the reader gets DATA_LOSS.
  h.AdvanceAlive(absl::Seconds(3600), members);
  EXPECT_EQ(h.core().Stats().bytes_held, 0);
  const CallId expired = h.As(members[2], Receive(0, "never read"));
  EXPECT_EQ(h.StatusOf(expired).code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(h.StatusOf(expired).message()),
              ::testing::ContainsRegex("^1 object from rank 0 to rank 2 tag \"never read\" expired "
                                       "unread: SendResponse.sequence [0-9]+$"));
}

TEST(InvariantC5, BytesReturnToZeroAfterEveryKindOfRound) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  for (RoundKind kind : {RoundKind::kAllGather, RoundKind::kGather, RoundKind::kBroadcast, RoundKind::kScatter}) {
    std::vector<std::pair<int, CallId>> calls;
    for (const TestMember& member : members) {
      EnterRoundCall call = Round(kind, "x", "12345678");
      call.root = kind == RoundKind::kAllGather ? -1 : 1;
      if (kind == RoundKind::kScatter) call.values.resize(3, call.values[0]);
      if ((kind == RoundKind::kBroadcast || kind == RoundKind::kScatter) && member.rank != 1)
        call.values.clear();
      calls.push_back({member.rank, h.As(member, call)});
    }
    std::vector<std::pair<int, int64_t>> receipts;
    for (const auto& [rank, id] : calls) {
      ASSERT_NE(h.Round(id), nullptr) << RoundKindName(kind) << " rank " << rank;
      ASSERT_EQ(h.Round(id)->outcome, RoundOutcome::kReleased);
      receipts.push_back({rank, h.Round(id)->receipt});
    }
    EXPECT_GT(h.core().Stats().bytes_held, 0) << RoundKindName(kind);
    h.ForgetReplies();
    for (const auto& [rank, receipt] : receipts) {
      h.As(members[rank], KeepAliveCall{}, absl::Seconds(1), Id128{}, {receipt});
    }
    EXPECT_EQ(h.core().Stats().bytes_held, 0) << RoundKindName(kind);
  }
}

TEST(InvariantC6, ARepeatGetsTheFirstAnswer) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId first = h.As(members[0], Send(1, "once"), absl::Seconds(1), Op(7));
  const CallId again = h.As(members[0], Send(1, "once"), absl::Seconds(1), Op(7));
  EXPECT_EQ(h.Get<SendReply>(first)->sequence, h.Get<SendReply>(again)->sequence);
  // The receiver's answer is lost; its repeat gets the same object, also after a restart of the
  // coordinator.
  const CallId received = h.As(members[1], Receive(0), absl::Seconds(1), Op(8));
  ASSERT_EQ(h.Get<ReceiveReply>(received)->payload.bytes(), "once");
  h.Restart();
  const CallId repeated = h.As(members[1], Receive(0), absl::Seconds(1), Op(8));
  ASSERT_NE(h.Get<ReceiveReply>(repeated), nullptr);
  EXPECT_EQ(h.Get<ReceiveReply>(repeated)->payload.bytes(), "once");
  const CallId resent = h.As(members[0], Send(1, "once"), absl::Seconds(1), Op(7));
  ASSERT_TRUE(h.StatusOf(resent).ok());
  const CallId nothing = h.As(members[1], Receive(0), absl::Seconds(1), Op(9));
  EXPECT_TRUE(h.Parked(nothing));
}

TEST(InvariantC6, ALostBarrierAnswerIsGivenAgain) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  EnterRoundCall barrier = Barrier("step");
  barrier.number = 1;
  h.As(members[0], barrier);
  h.As(members[1], barrier);
  h.Restart();
  const CallId again = h.As(members[1], barrier);
  ASSERT_FALSE(h.Parked(again));
  EXPECT_EQ(h.Round(again)->outcome, RoundOutcome::kReleased);
}

}  // namespace
}  // namespace cohort::coordinator
