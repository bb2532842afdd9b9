// kill -9 of the coordinator between any two steps: what the journal brings back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/testing/core_harness.h"

namespace cohort::coordinator {
namespace {

using TestMember = CoreHarness::TestMember;

TEST(Restart, MembersKeepTheirRanksForALease) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  h.Restart();
  h.Advance(absl::Seconds(29));
  EXPECT_TRUE(h.StatusOf(h.As(members[0], KeepAliveCall{})).ok());
  EXPECT_TRUE(h.StatusOf(h.As(members[1], KeepAliveCall{})).ok());
  h.Advance(absl::Seconds(2));
  const CallId aborted = h.As(members[0], EnterRoundCall{});
  EXPECT_EQ(h.StatusOf(aborted).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h.Find(aborted)->context->cause.member, "w2");
}

TEST(Restart, ABarrierInProgressCompletes) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  EnterRoundCall barrier;
  barrier.name = "step";
  barrier.number = 1;
  h.As(members[0], barrier);
  h.As(members[1], barrier);
  h.Restart();
  h.As(members[1], barrier);  // the repeats
  h.As(members[2], barrier);
  const CallId last = h.As(members[0], barrier);
  EXPECT_EQ(h.Round(last)->outcome, RoundOutcome::kReleased);
}

// Its round has ended, and the member that asks again, whose answer was lost, learns who was
// missing.
TEST(Restart, ABarrierThatTimedOutBeforeSaysSo) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  EnterRoundCall barrier;
  barrier.name = "step";
  barrier.number = 1;
  h.As(members[0], barrier, absl::Seconds(5));
  h.Advance(absl::Seconds(6));
  h.Restart();
  const CallId repeat = h.As(members[0], barrier);
  ASSERT_NE(h.Round(repeat), nullptr);
  EXPECT_EQ(h.Round(repeat)->outcome, RoundOutcome::kTimedOut);
  EXPECT_FALSE(h.Round(repeat)->late);  // it was there
  EXPECT_THAT(h.Round(repeat)->missing.missing, ::testing::ElementsAre(RankRange{1, 2}));
}

TEST(Restart, AnAllGatherWhoseAnswersWereHalfDeliveredIsGivenToTheRest) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  EnterRoundCall gather;
  gather.kind = RoundKind::kAllGather;
  gather.number = 1;
  gather.values.resize(1);
  gather.values[0].bytes = "a";
  h.As(members[0], gather);
  gather.values[0].bytes = "b";
  h.As(members[1], gather);
  h.Restart();
  // Rank 0 got its answer and goes on; rank 1 did not.
  gather.number = 2;
  const CallId next = h.As(members[0], gather);
  EXPECT_TRUE(h.Parked(next));
  gather.number = 1;
  const CallId repeat = h.As(members[1], gather);
  ASSERT_NE(h.Round(repeat), nullptr);
  EXPECT_EQ(h.Round(repeat)->values[0].bytes(), "a");
  gather.number = 2;
  h.As(members[1], gather);
  EXPECT_FALSE(h.Parked(next));
}

TEST(Restart, BroadcastsAndUndeliveredObjectsAreKeptAndBytesAreCounted) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  EnterRoundCall broadcast;
  broadcast.kind = RoundKind::kBroadcast;
  broadcast.root = 0;
  broadcast.values.resize(1);
  broadcast.values[0].bytes = "weights";
  h.As(members[0], broadcast);
  for (int i = 0; i < 3; ++i) {
    SendCall send;
    send.destination = 1;
    send.value.bytes = absl::StrCat("object ", i);
    h.As(members[0], send);
  }
  h.Restart();
  EXPECT_EQ(h.core().Stats().bytes_held, 7 + 3 * 8);
  broadcast.values.clear();
  EXPECT_EQ(h.Get<RoundReply>(h.As(members[1], broadcast))->own.bytes(), "weights");
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(h.Get<ReceiveReply>(h.As(members[1], ReceiveCall{0, ""}))->payload.bytes(),
              absl::StrCat("object ", i));
  }
}

TEST(Restart, GenerationsAndCausesSurvive) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  h.As(members[1], ReportErrorCall{"disk on fire", true, {}});
  h.Restart();
  const CallId aborted = h.As(members[0], EnterRoundCall{});
  EXPECT_EQ(h.Find(aborted)->context->cause.detail, "disk on fire");
  h.Reform(members, CoreHarness::Fixed(2));
  EXPECT_EQ(members[0].generation, 2);
  h.Restart();
  EXPECT_TRUE(h.StatusOf(h.As(members[0], KeepAliveCall{})).ok());
  EXPECT_EQ(h.Get<KeepAliveReply>(h.As(members[0], KeepAliveCall{}))->generation, 2);
}

TEST(Restart, NumbersOfALaterBootAreLarger) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  SendCall send;
  send.destination = 1;
  const int64_t before = h.Get<SendReply>(h.As(members[0], send))->sequence;
  PutCall put;
  put.key = "k";
  const int64_t revision = h.Get<PutReply>(h.As(members[0], put))->revision;
  h.Restart();
  EXPECT_GT(h.Get<SendReply>(h.As(members[0], send))->sequence, before);
  EXPECT_GT(h.Get<PutReply>(h.As(members[0], put))->revision, revision);
}

TEST(Restart, InTheMiddleOfFormingTheJoinsComeAgain) {
  CoreHarness h;
  TestMember a{"a", 1}, b{"b", 2};
  h.Join(a, CoreHarness::Fixed(2), 0);
  h.Restart();
  const CallId jb = h.Join(b, CoreHarness::Fixed(2), 1);
  EXPECT_TRUE(h.Parked(jb));
  const CallId ja = h.Join(a, CoreHarness::Fixed(2), 0);
  EXPECT_TRUE(h.JoinAnswered(a, ja));
  EXPECT_TRUE(h.JoinAnswered(b, jb));
}

}  // namespace
}  // namespace cohort::coordinator
