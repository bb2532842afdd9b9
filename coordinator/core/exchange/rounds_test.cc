// Numbered rounds, member by member: which number a call takes part in, and the answer to a member
// that comes late. One file, though long: the tests share their calls.
#include "coordinator/core/exchange/rounds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

EnterRoundCall Numbered(EnterRoundCall call, int64_t number) {
  call.number = number;
  return call;
}
EnterRoundCall Gather(int root) {
  EnterRoundCall call = Round(RoundKind::kGather, "", "v");
  call.root = root;
  return call;
}

// Rank 0 has timed out in number 1 and waits in number 2; rank 1 has called nothing yet.
class LateMemberTest : public ::testing::TestWithParam<RoundKind> {
 protected:
  EnterRoundCall CallOfKind() const {
    return GetParam() == RoundKind::kGather ? Gather(0) : Round(GetParam(), "step", "v");
  }
  void TimeOutOnce() {
    const CallId first = h_.As(members_[0], CallOfKind(), absl::Seconds(5));
    h_.Advance(absl::Seconds(5));
    ASSERT_NE(h_.Round(first), nullptr);
    EXPECT_EQ(h_.Round(first)->outcome, RoundOutcome::kTimedOut);
    EXPECT_FALSE(h_.Round(first)->late);
    EXPECT_EQ(h_.Round(first)->next_number, 2);
  }
  void ExpectLate(CallId id, int64_t number, int64_t next) {
    ASSERT_NE(h_.Round(id), nullptr) << h_.StatusOf(id);
    const RoundEnd& end = *h_.Round(id);
    EXPECT_EQ(end.outcome, RoundOutcome::kTimedOut);
    EXPECT_TRUE(end.late);
    EXPECT_EQ(end.kind, GetParam());
    EXPECT_EQ(end.name, CallOfKind().name);
    EXPECT_EQ(end.number, number);
    EXPECT_EQ(end.next_number, next);
    EXPECT_THAT(end.reason, HasSubstr("before rank 1 came"));
    EXPECT_THAT(end.missing.arrived, ElementsAre(RankRange{0, 0}));
    EXPECT_THAT(end.missing.missing, ElementsAre(RankRange{1, 1}));
    EXPECT_EQ(end.missing.arrived_count, 1);
    EXPECT_EQ(end.missing.expected_count, 2);
  }
  void ExpectReleasedTogether(CallId waits, int64_t number) {
    EXPECT_TRUE(h_.Parked(waits));
    const CallId caught_up = h_.As(members_[1], CallOfKind());
    for (CallId id : {waits, caught_up}) {
      ASSERT_NE(h_.Round(id), nullptr);
      EXPECT_EQ(h_.Round(id)->outcome, RoundOutcome::kReleased);
      EXPECT_EQ(h_.Round(id)->number, number);
    }
  }

  CoreHarness h_;
  std::vector<TestMember> members_ = h_.Form(2);
};

TEST_P(LateMemberTest, LearnsHowItsOwnNumberEndedAndCatchesUp) {
  TimeOutOnce();
  const CallId waits = h_.As(members_[0], CallOfKind());
  const CallId late = h_.As(members_[1], CallOfKind());
  ExpectLate(late, 1, 2);
  ExpectReleasedTogether(waits, 2);
}

TEST_P(LateMemberTest, LearnsItAfterARestartToo) {
  TimeOutOnce();
  h_.Restart();
  const CallId waits = h_.As(members_[0], CallOfKind());
  const CallId late = h_.As(members_[1], CallOfKind());
  ExpectLate(late, 1, 2);
  h_.Restart();  // and the member gets the end once
  const CallId again = h_.As(members_[0], CallOfKind());
  ExpectReleasedTogether(again, 2);
  static_cast<void>(waits);
}

TEST_P(LateMemberTest, GoesOnWhereTheOthersAreAfterSeveralNumbers) {
  for (int i = 0; i < 4; ++i) {
    h_.As(members_[0], CallOfKind(), absl::Seconds(5));
    h_.Advance(absl::Seconds(5));
  }
  const CallId waits = h_.As(members_[0], CallOfKind());
  const CallId late = h_.As(members_[1], CallOfKind());
  ExpectLate(late, 1, 5);
  ExpectReleasedTogether(waits, 5);
}

TEST_P(LateMemberTest, LearnsItWhenItNamesTheNumberToo) {
  TimeOutOnce();
  const CallId waits = h_.As(members_[0], CallOfKind());
  ExpectLate(h_.As(members_[1], Numbered(CallOfKind(), 1)), 1, 2);
  ExpectReleasedTogether(waits, 2);
}

INSTANTIATE_TEST_SUITE_P(Kinds, LateMemberTest,
                         ::testing::Values(RoundKind::kBarrier, RoundKind::kAllGather,
                                           RoundKind::kGather, RoundKind::kVote,
                                           RoundKind::kAgreeAlive),
                         [](const auto& info) {
                           std::string name = RoundKindName(info.param);
                           name.erase(std::remove(name.begin(), name.end(), '_'), name.end());
                           return name;
                         });

// The round has ended for all, whose next call is #2, with the fault of one rank.
void ExpectMismatch(CoreHarness& h, const std::vector<CallId>& calls, size_t wrong_at,
                    const std::string& why) {
  for (const CallId call : calls) {
    ASSERT_NE(h.Round(call), nullptr);
    EXPECT_EQ(h.Round(call)->outcome, RoundOutcome::kMismatch);
    EXPECT_EQ(h.Round(call)->next_number, 2);
    EXPECT_THAT(h.Round(call)->reason, HasSubstr(why));
    EXPECT_THAT(h.Round(call)->reason, HasSubstr(absl::StrCat("rank ", wrong_at)));
  }
}

// The others wait for the member, and its next call is the next one of all.
TEST(RoundNumbers, AWrongArgumentOfOneMemberEndsTheRoundForAll) {
  for (const RoundKind kind : {RoundKind::kBroadcast, RoundKind::kGather, RoundKind::kScatter}) {
    for (const size_t wrong_at : {0, 1, 2}) {
      CoreHarness h;
      std::vector<TestMember> members = h.Form(3);
      EnterRoundCall right = Barrier("step");
      right.kind = kind;
      right.root = 2;
      EnterRoundCall wrong = right;
      const bool number = wrong_at != 1;
      wrong.root = number ? 3 : std::numeric_limits<int32_t>::min();
      std::vector<CallId> calls;
      for (size_t rank = 0; rank < 3; ++rank) {
        calls.push_back(h.As(members[rank], rank == wrong_at ? wrong : right));
      }
      ExpectMismatch(h, calls, wrong_at, number ? "root 3 is not among participants"
                                                : "the root is no number of 32 bits");
      CallId last = 0;
      for (const TestMember& member : members) last = h.As(member, Barrier("step"));
      ASSERT_NE(h.Round(last), nullptr);
      EXPECT_EQ(h.Round(last)->outcome, RoundOutcome::kReleased);
      EXPECT_EQ(h.Round(last)->number, 2);
    }
  }
}

TEST(RoundNumbers, AMemberThatRefusesTakesItsTurn) {
  for (const size_t wrong_at : {0, 1, 2}) {
    for (const bool refuses : {true, false}) {
      CoreHarness h;
      std::vector<TestMember> members = h.Form(3);
      EnterRoundCall right = Barrier("step");
      right.kind = RoundKind::kAllGather;
      EnterRoundCall wrong = Barrier("step");
      if (refuses) {
        wrong.refusal = "timeout: -1";
      } else {
        wrong.participants = {{0, 3}};
      }
      std::vector<CallId> calls;
      for (size_t rank = 0; rank < 3; ++rank) {
        calls.push_back(h.As(members[rank], rank == wrong_at ? wrong : right));
      }
      ExpectMismatch(h, calls, wrong_at, refuses ? "timeout: -1" : "participant 3");
    }
  }
}

TEST(RoundNumbers, AMemberThatComesLateToSeveralMismatchesStaysInStep) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  EnterRoundCall right = Barrier("step");
  right.kind = RoundKind::kBroadcast;
  right.root = 1;
  EnterRoundCall wrong = right;
  wrong.root = 7;
  for (int call = 0; call < 3; ++call) h.As(members[0], wrong);
  for (int64_t number = 1; number <= 3; ++number) {
    const CallId late = h.As(members[1], Numbered(right, number));
    ASSERT_NE(h.Round(late), nullptr);
    EXPECT_EQ(h.Round(late)->number, number);
    EXPECT_EQ(h.Round(late)->outcome, RoundOutcome::kMismatch);
    EXPECT_EQ(h.Round(late)->next_number, number + 1);
  }
}

TEST(RoundNumbers, AMemberLearnsOfACancelAndOfAMismatchThatItMissed) {
  for (const bool restarts : {false, true}) {
    SCOPED_TRACE(restarts ? "restarts" : "runs on");
    CoreHarness h;
    std::vector<TestMember> members = h.Form(3);
    h.As(members[0], Barrier("step"));
    h.As(members[0], CancelRoundCall{"step", 0, "enough"});
    h.As(members[1], Barrier("step"));  // gets the cancel
    EnterRoundCall digest = Barrier("step");
    digest.digest = "x";
    h.As(members[0], Barrier("step"));
    const CallId differs = h.As(members[1], digest);
    ASSERT_NE(h.Round(differs), nullptr);
    EXPECT_EQ(h.Round(differs)->outcome, RoundOutcome::kMismatch);
    if (restarts) h.Restart();
    // Rank 2 gets only the end of number 1. Then it is at the number of the others.
    const CallId missed = h.As(members[2], Barrier("step"));
    ASSERT_NE(h.Round(missed), nullptr);
    EXPECT_EQ(h.Round(missed)->kind, RoundKind::kBarrier);
    EXPECT_EQ(h.Round(missed)->name, "step");
    EXPECT_EQ(h.Round(missed)->number, 1);
    EXPECT_TRUE(h.Round(missed)->late);
    EXPECT_EQ(h.Round(missed)->outcome, RoundOutcome::kCancelled);
    EXPECT_EQ(h.Round(missed)->reason, "enough");
    EXPECT_EQ(h.Round(missed)->next_number, 3);
    CallId last = 0;
    for (const TestMember& member : members) last = h.As(member, Barrier("step"));
    ASSERT_NE(h.Round(last), nullptr);
    EXPECT_EQ(h.Round(last)->number, 3);
    EXPECT_EQ(h.Round(last)->outcome, RoundOutcome::kReleased);
  }
}

TEST(RoundNumbers, ALaterNumberThatEndedIsNotSkipped) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId first = h.As(members[0], Barrier(), absl::Seconds(60));
  const CallId second = h.As(members[0], Barrier(), absl::Seconds(5));
  h.Advance(absl::Seconds(5));
  EXPECT_EQ(h.Round(second)->number, 2);
  EXPECT_EQ(h.Round(second)->outcome, RoundOutcome::kTimedOut);
  const CallId third = h.As(members[0], Barrier(), absl::Seconds(60));
  EXPECT_TRUE(h.Parked(third));

  const CallId in_time = h.As(members[1], Barrier());
  ASSERT_NE(h.Round(in_time), nullptr);
  EXPECT_EQ(h.Round(in_time)->number, 1);
  EXPECT_EQ(h.Round(first)->outcome, RoundOutcome::kReleased);
  const CallId late = h.As(members[1], Barrier());
  ASSERT_NE(h.Round(late), nullptr);
  EXPECT_EQ(h.Round(late)->number, 2);
  EXPECT_EQ(h.Round(late)->outcome, RoundOutcome::kTimedOut);
  EXPECT_TRUE(h.Round(late)->late);
  const CallId met = h.As(members[1], Barrier());
  ASSERT_NE(h.Round(met), nullptr);
  EXPECT_EQ(h.Round(met)->number, 3);
  EXPECT_EQ(h.Round(third)->outcome, RoundOutcome::kReleased);
}

TEST(RoundNumbers, ACallThatWentAwayLeavesItsNumberToTheNext) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId gone = h.As(members[0], Barrier());
  const CallId second = h.As(members[0], Barrier());
  h.Cancel(gone);
  const CallId again = h.As(members[0], Barrier());
  EXPECT_EQ(h.Round(h.As(members[1], Barrier()))->number, 1);
  EXPECT_FALSE(h.Parked(again));
  EXPECT_EQ(h.Round(h.As(members[1], Barrier()))->number, 2);
  EXPECT_FALSE(h.Parked(second));
}

TEST(RoundNumbers, GoOnFromANumberThatWasNamed) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  for (const TestMember& member : members) h.As(member, Numbered(Barrier(), 1));
  for (const TestMember& member : members) h.As(member, Numbered(Barrier(), 2));
  h.As(members[0], Barrier());
  const CallId third = h.As(members[1], Barrier());
  ASSERT_NE(h.Round(third), nullptr);
  EXPECT_EQ(h.Round(third)->number, 3);
}

TEST(RoundNumbers, AReaderGetsEarlierBroadcastsOfARootInOrder) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  for (const char* value : {"a", "b", "c"}) {
    EnterRoundCall root = Round(RoundKind::kBroadcast, "", value);
    root.root = 0;
    h.As(members[0], root);
  }
  EnterRoundCall read = Round(RoundKind::kBroadcast);
  read.root = 0;
  for (int rank : {2, 1}) {
    for (const char* value : {"a", "b", "c"}) {
      EXPECT_EQ(h.Get<RoundReply>(h.As(members[rank], read))->own.bytes(), value) << rank;
    }
  }
}

// A value that expired is not read; the reader gets one error, and then reads the next.
TEST(RoundNumbers, GoOnAfterAValueThatExpired) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(2);
  spec.data_expiration = absl::Seconds(10);
  std::vector<TestMember> members = h.Form(spec);
  EnterRoundCall root = Round(RoundKind::kBroadcast, "", "old");
  root.root = 0;
  h.As(members[0], root);
  h.Advance(absl::Seconds(10));
  EnterRoundCall read = Round(RoundKind::kBroadcast);
  read.root = 0;
  EXPECT_EQ(h.StatusOf(h.As(members[1], read)).code(), absl::StatusCode::kDataLoss);
  root.values[0].bytes = "new";
  h.As(members[0], root);
  EXPECT_EQ(h.Get<RoundReply>(h.As(members[1], read))->own.bytes(), "new");
}

TEST(RoundNumbers, AReaderOfSeveralValuesThatExpiredGetsOneError) {
  for (const bool restarts : {false, true}) {
    CoreHarness h;
    GroupSpec spec = CoreHarness::Fixed(3);
    spec.data_expiration = absl::Seconds(10);
    std::vector<TestMember> members = h.Form(spec);
    EnterRoundCall root = Round(RoundKind::kBroadcast, "", "old");
    root.root = 0;
    EnterRoundCall read = Round(RoundKind::kBroadcast);
    read.root = 0;
    for (int i = 0; i < 3; ++i) {
      h.As(members[0], root);
      EXPECT_EQ(h.Get<RoundReply>(h.As(members[1], read))->own.bytes(), "old");
    }
    h.Advance(absl::Seconds(10));
    if (restarts) h.Restart();
    const absl::Status lost = h.StatusOf(h.As(members[2], read));
    EXPECT_EQ(lost.code(), absl::StatusCode::kDataLoss) << lost;
    EXPECT_THAT(std::string(lost.message()), HasSubstr("#1 was released"));
    EXPECT_THAT(std::string(lost.message()), HasSubstr("the name is at #4"));
    root.values[0].bytes = "new";
    h.As(members[0], root);
    for (const int rank : {1, 2}) {
      EXPECT_EQ(h.Get<RoundReply>(h.As(members[rank], read))->own.bytes(), "new") << rank;
    }
  }
}

// The memory for a rank that never calls does not grow with the rounds that it misses.
TEST(RoundNumbers, TheNumbersOfARankThatNeverComesStayBounded) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  EnterRoundCall pair = Barrier("pair");
  pair.participants = {{0, 1}};
  const auto step = [&] {
    h.As(members[0], Barrier("all"), absl::Milliseconds(1));
    h.Advance(absl::Milliseconds(1));
    h.As(members[0], pair);
    ASSERT_EQ(h.Round(h.As(members[1], pair))->outcome, RoundOutcome::kReleased);
    h.ForgetReplies();
  };
  for (int i = 0; i < 20; ++i) step();
  const size_t rows = h.journal_rows();
  const size_t bytes = h.journal_row_late_count();
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_EQ(h.journal_rows(), rows);
  EXPECT_EQ(h.journal_row_late_count(), bytes);
  EXPECT_EQ(bytes, 2u);  // one entry of each name
}

TEST(Rounds, ARepeatReplacesTheFirstCall) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  const CallId first = h.As(members[0], Numbered(Barrier(), 1), absl::Seconds(5));
  const CallId repeat = h.As(members[0], Numbered(Barrier(), 1), absl::Seconds(60));
  EXPECT_EQ(h.StatusOf(first).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(h.core().Stats().waiter_count, 1);
  h.Advance(absl::Seconds(6));  // the end of the first one's wait ends nothing
  EXPECT_TRUE(h.Parked(repeat));
  h.As(members[1], Numbered(Barrier(), 1));
  EXPECT_EQ(h.Round(repeat)->outcome, RoundOutcome::kReleased);
  EXPECT_FALSE(h.answered_twice());

  EnterRoundCall read = Round(RoundKind::kBroadcast, "b");
  read.root = 0;
  read.number = 1;
  const CallId reads = h.As(members[1], read, absl::Seconds(5));
  const CallId again = h.As(members[1], read, absl::Seconds(60));
  EXPECT_EQ(h.StatusOf(reads).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(h.core().Stats().waiter_count, 1);
  h.Advance(absl::Seconds(6));
  EXPECT_TRUE(h.Parked(again));
}

TEST(Rounds, ARepeatIsNoNewArrival) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(3);
  h.As(members[0], Numbered(Barrier(), 1), absl::Seconds(60));
  h.Advance(absl::Seconds(2));
  const CallId second = h.As(members[1], Numbered(Barrier(), 1), absl::Seconds(10));
  h.Advance(absl::Seconds(5));
  h.As(members[0], Numbered(Barrier(), 1), absl::Seconds(60));
  h.Advance(absl::Seconds(5));
  ASSERT_NE(h.Round(second), nullptr);
  EXPECT_EQ(h.Round(second)->missing.first_rank, 0);
  EXPECT_EQ(h.Round(second)->missing.last_rank, 1);
  EXPECT_EQ(h.Round(second)->missing.skew, absl::Seconds(2));
}

// All ranks but rank 0 vote, so a rank differs from its place among the votes.
TEST(Rounds, AVoteHasTheResultOfItsKindAndOnlyEqualNamesTheDissentingRanks) {
  constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
  struct Case {
    VoteOp op;
    std::vector<int64_t> votes;
    int64_t result;
    std::vector<int> dissenting;
  };
  const std::vector<Case> cases = {
      {VoteOp::kAnd, {1, -2, 3}, 1, {}},      {VoteOp::kAnd, {1, 0, 3}, 0, {}},
      {VoteOp::kAnd, {1, 1, 0}, 0, {}},       {VoteOp::kOr, {0, 0, 0}, 0, {}},
      {VoteOp::kOr, {0, 0, -1}, 1, {}},       {VoteOp::kOr, {2, 0, 0}, 1, {}},
      {VoteOp::kSum, {1, -5, 3}, -1, {}},     {VoteOp::kSum, {kHighest, 1, 0}, kLowest, {}},
      {VoteOp::kMin, {1, -5, 3}, -5, {}},     {VoteOp::kMin, {4, 6, 5}, 4, {}},
      {VoteOp::kMax, {-3, -1, -2}, -1, {}},   {VoteOp::kMax, {4, 6, 8}, 8, {}},
      {VoteOp::kEqual, {-7, -7, -7}, 1, {}},  {VoteOp::kEqual, {0, 0, 0}, 1, {}},
      {VoteOp::kEqual, {7, 7, 8}, 0, {3}},    {VoteOp::kEqual, {7, 8, 7}, 0, {2}},
      {VoteOp::kEqual, {8, 7, 7}, 0, {2, 3}},
  };
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(4);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& row = cases[i];
    SCOPED_TRACE(i);
    std::vector<CallId> calls;
    for (int rank = 1; rank < 4; ++rank) {
      EnterRoundCall call = Round(RoundKind::kVote, "vote");
      call.participants = {{1, 3}};
      call.op = row.op;
      call.vote = row.votes[rank - 1];
      calls.push_back(h.As(members[rank], call));
    }
    for (const CallId call : calls) {
      ASSERT_NE(h.Round(call), nullptr) << h.StatusOf(call);
      EXPECT_EQ(h.Round(call)->outcome, RoundOutcome::kReleased);
      EXPECT_EQ(h.Round(call)->vote, row.result);
      EXPECT_EQ(h.Round(call)->dissenting.ToVector(), row.dissenting);
    }
  }
}

TEST(Rounds, ABroadcastOrScatterThatTimesOutNamesItsRootOrTheRanksThatHaveNotRead) {
  for (const RoundKind kind : {RoundKind::kBroadcast, RoundKind::kScatter}) {
    SCOPED_TRACE(RoundKindName(kind));
    CoreHarness h;
    const std::vector<TestMember> members = h.Form(4);
    EnterRoundCall read = Round(kind, "weights");
    read.root = 2;
    const CallId first = h.As(members[0], read, absl::Seconds(5));
    h.Advance(absl::Seconds(2));
    const CallId second = h.As(members[1], read, absl::Seconds(60));
    h.Advance(absl::Seconds(3));
    ASSERT_NE(h.Round(first), nullptr);
    EXPECT_EQ(h.Round(first)->outcome, RoundOutcome::kTimedOut);
    const MissingReport& root_is_missing = h.Round(first)->missing;
    EXPECT_EQ(root_is_missing.expected_count, 1);
    EXPECT_EQ(root_is_missing.arrived_count, 0);
    EXPECT_THAT(root_is_missing.arrived, ElementsAre());
    EXPECT_THAT(root_is_missing.missing, ElementsAre(RankRange{2, 2}));
    ASSERT_EQ(root_is_missing.details.size(), 1);
    EXPECT_EQ(root_is_missing.details[0].member, "w2");

    EnterRoundCall give = read;
    give.values.resize(kind == RoundKind::kBroadcast ? 1 : 4, Value{"value", 0, true});
    give.wait_consumed = true;
    const CallId root = h.As(members[2], give, absl::Seconds(5));
    ASSERT_NE(h.Get<RoundReply>(second), nullptr);
    EXPECT_EQ(h.Get<RoundReply>(second)->own.bytes(), "value");
    h.Advance(absl::Seconds(5));
    ASSERT_NE(h.Round(root), nullptr);
    EXPECT_EQ(h.Round(root)->outcome, RoundOutcome::kTimedOut);
    const MissingReport& readers_are_missing = h.Round(root)->missing;
    EXPECT_EQ(readers_are_missing.expected_count, 4);
    EXPECT_EQ(readers_are_missing.arrived_count, 2);
    EXPECT_THAT(readers_are_missing.arrived, ElementsAre(RankRange{1, 2}));
    EXPECT_THAT(readers_are_missing.missing, ElementsAre(RankRange{0, 0}, RankRange{3, 3}));
  }
}

TEST(Rounds, ExpireFreesOnlyValuesThatAreOldEnough) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(2);
  for (const TestMember& member : members)
    h.As(member, Round(RoundKind::kAllGather, "shapes", "value"));
  const auto expire = [&] {
    const auto* reply = h.Get<ExpireReply>(h.As(members[0], ExpireCall{absl::Seconds(10)}));
    return reply == nullptr ? -1 : reply->object_count;
  };
  EXPECT_EQ(expire(), 0);
  h.AdvanceAlive(absl::Seconds(10), members);
  EXPECT_EQ(expire(), 1);
}

// The group survives the loss, and so do the values of its rounds.
TEST(Rounds, ValuesDoNotWaitForTheAcknowledgementOfALostMember) {
  for (const RoundKind kind : {RoundKind::kAllGather, RoundKind::kGather}) {
    for (const bool is_lost_first : {true, false}) {
      SCOPED_TRACE(
          absl::StrCat(RoundKindName(kind), is_lost_first ? ", lost first" : ", lost last"));
      CoreHarness h;
      GroupSpec spec = CoreHarness::Fixed(3);
      spec.fate = Fate::kReport;
      const std::vector<TestMember> members = h.Form(spec);
      EnterRoundCall call = Round(kind, "shapes", "value");
      call.root = 2;
      CallId last = 0;
      for (const TestMember& member : members) last = h.As(member, call);
      ASSERT_NE(h.Round(last), nullptr);
      EXPECT_EQ(h.Round(last)->outcome, RoundOutcome::kReleased);
      const int64_t receipt = h.Round(last)->receipt;
      h.ForgetReplies();
      EXPECT_GT(h.core().Stats().bytes_held, 0);
      if (is_lost_first) h.Make(EvictCall{"w2", "replaced"}, Caller{});
      for (const int rank : {0, 1}) {
        h.As(members[rank], KeepAliveCall{}, absl::Seconds(1), {}, {receipt});
      }
      if (!is_lost_first) h.Make(EvictCall{"w2", "replaced"}, Caller{});
      EXPECT_EQ(h.core().Stats().bytes_held, 0);
    }
  }
}

// The clock of progress begins anew when a wait ends, not when it was looked at last.
TEST(Rounds, AReleasedMemberHasItsWholeTimeToProgress) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(2);
  spec.progress_timeout = absl::Seconds(20);
  std::vector<TestMember> members = h.Form(spec);
  const CallId waits = h.As(members[0], Barrier("step"), absl::Seconds(300));
  int64_t progress = 0;
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      h.As(members[0], KeepAliveCall{1, "works"});
      h.As(members[1], KeepAliveCall{++progress, "works"});
      h.Advance(absl::Seconds(1));
    }
  };
  pass(39);
  EXPECT_TRUE(h.Parked(waits));
  h.As(members[1], Barrier("step"));
  EXPECT_EQ(h.Round(waits)->outcome, RoundOutcome::kReleased);
  const CallId next = h.As(members[1], Barrier("step"), absl::Seconds(300));
  pass(15);
  EXPECT_TRUE(h.Parked(next)) << h.StatusOf(next);
  pass(10);
  ASSERT_FALSE(h.Parked(next));
  EXPECT_EQ(h.Find(next)->context->cause.kind, CauseKind::kNoProgress);
  EXPECT_EQ(h.Find(next)->context->cause.member, "w0");
}

}  // namespace
}  // namespace cohort::coordinator
