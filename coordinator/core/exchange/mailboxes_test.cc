// Objects between two ranks: their limits, and the answers that report the fate of an object.
#include "coordinator/core/exchange/mailboxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

Id128 Op(uint64_t n) { return Id128{0x0f, n}; }

TEST(Mailboxes, AcknowledgedObjectsDoNotCountAsUnacknowledged) {
  Limits limits;
  limits.max_unacknowledged = 2;
  CoreHarness h(limits);
  std::vector<TestMember> members = h.Form(2);
  for (int i = 0; i < 8; ++i) h.As(members[0], Send(1, "x"));
  for (int i = 0; i < 5; ++i) {
    const CallId receive = h.As(members[1], Receive(0), absl::Seconds(1), Op(100 + i));
    ASSERT_NE(h.Get<ReceiveReply>(receive), nullptr) << i << ": " << h.StatusOf(receive);
    h.As(members[1], KeepAliveCall{}, absl::Seconds(1), {},
         {h.Get<ReceiveReply>(receive)->receipt});
  }
  h.As(members[1], Receive(0), absl::Seconds(1), Op(200));
  h.As(members[1], Receive(0), absl::Seconds(1), Op(201));
  const CallId third = h.As(members[1], Receive(0), absl::Seconds(1), Op(202));
  EXPECT_EQ(h.StatusOf(third).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(h.StatusOf(third).message()), HasSubstr("max_unacknowledged is 2"));
}

TEST(Mailboxes, UnacknowledgedObjectsEndWithTheirGeneration) {
  Limits limits;
  limits.max_unacknowledged = 2;
  CoreHarness h(limits);
  std::vector<TestMember> members = h.Form(2);
  for (int i = 0; i < 2; ++i) h.As(members[0], Send(1, "x"));
  for (int i = 0; i < 2; ++i) h.As(members[1], Receive(0), absl::Seconds(1), Op(100 + i));
  h.As(members[0], ReportErrorCall{"over", /*fatal=*/true});
  h.Reform(members, CoreHarness::Fixed(2));
  ASSERT_EQ(members[1].generation, 2);
  h.As(members[0], Send(1, "y"));
  const CallId receive = h.As(members[1], Receive(0), absl::Seconds(1), Op(200));
  ASSERT_NE(h.Get<ReceiveReply>(receive), nullptr) << h.StatusOf(receive);
  EXPECT_EQ(h.Get<ReceiveReply>(receive)->payload.bytes(), "y");
}

TEST(Mailboxes, AnotherMemberAcknowledgesNothing) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  h.As(members[0], Send(1, "x"));
  const CallId first = h.As(members[1], Receive(0), absl::Seconds(1), Op(1));
  ASSERT_NE(h.Get<ReceiveReply>(first), nullptr) << h.StatusOf(first);
  const int64_t receipt = h.Get<ReceiveReply>(first)->receipt;
  h.As(members[2], KeepAliveCall{}, absl::Seconds(1), {}, {receipt});
  // Its receiver, whose answer was lost, gets the object again.
  const CallId repeat = h.As(members[1], Receive(0), absl::Seconds(1), Op(1));
  ASSERT_NE(h.Get<ReceiveReply>(repeat), nullptr) << h.StatusOf(repeat);
  EXPECT_EQ(h.Get<ReceiveReply>(repeat)->payload.bytes(), "x");
  EXPECT_EQ(h.Get<ReceiveReply>(repeat)->receipt, receipt);
}

TEST(Mailboxes, ARepeatedSendLearnsThatItsReceiverDiedWithoutReading) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(3);
  spec.fate = Fate::kReport;
  std::vector<TestMember> members = h.Form(spec);
  SendCall send = Send(1, "x");
  send.wait_consumed = true;
  const CallId first = h.As(members[0], send, absl::Seconds(60), Op(1));
  EXPECT_TRUE(h.Parked(first));
  h.Make(EvictCall{"w1", "test"}, Caller{});
  ASSERT_NE(h.Get<SendReply>(first), nullptr) << h.StatusOf(first);
  EXPECT_FALSE(h.Get<SendReply>(first)->consumed);
  const CallId repeat = h.As(members[0], send, absl::Seconds(60), Op(1));
  ASSERT_NE(h.Get<SendReply>(repeat), nullptr) << h.StatusOf(repeat);
  EXPECT_FALSE(h.Get<SendReply>(repeat)->consumed);
  EXPECT_EQ(h.Get<SendReply>(repeat)->sequence, h.Get<SendReply>(first)->sequence);
}

TEST(Mailboxes, AnObjectExpiresInTimeInALaterGeneration) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(2);
  SendCall send = Send(1, "x");
  send.expiration = absl::Seconds(2);
  h.As(members[0], send);
  h.As(members[0], ReportErrorCall{"over", /*fatal=*/true});
  h.Reform(members, CoreHarness::Fixed(2));
  send.expiration = absl::Seconds(4);
  h.As(members[0], send);
  EXPECT_GT(h.core().Stats().bytes_held, 0);
  h.Advance(absl::Seconds(4));
  EXPECT_EQ(h.core().Stats().bytes_held, 0);
  const CallId receive = h.As(members[1], Receive(0), absl::Seconds(1), Op(1));
  EXPECT_TRUE(absl::IsDataLoss(h.StatusOf(receive))) << h.StatusOf(receive);
}

TEST(Mailboxes, AnObjectExpiresInTimeAfterARestart) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(2);
  SendCall send = Send(1, "x");
  send.expiration = absl::Seconds(5);
  h.As(members[0], send);
  h.Restart();
  EXPECT_GT(h.core().Stats().bytes_held, 0);
  h.Advance(absl::Seconds(5));
  EXPECT_EQ(h.core().Stats().bytes_held, 0);
  const CallId receive = h.As(members[1], Receive(0), absl::Seconds(1), Op(1));
  EXPECT_TRUE(absl::IsDataLoss(h.StatusOf(receive))) << h.StatusOf(receive);
}

class AbandonedReceiveTest : public ::testing::Test {
 protected:
  AbandonedReceiveTest() : members_(h_.Form(3)) {}

  std::string Next(uint64_t operation, std::optional<int> source = 0) {
    ReceiveCall call = Receive(0);
    call.source = source;
    const CallId id = h_.As(members_[1], call, absl::Milliseconds(1), Op(operation));
    const auto* reply = h_.Get<ReceiveReply>(id);
    if (reply != nullptr) return reply->payload.bytes();
    h_.Cancel(id);
    return "none";
  }
  void Abandon(const TestMember& member, const std::vector<uint64_t>& operations) {
    Caller caller{h_.key(), member.generation, member.session, {}, {}, member.identity};
    for (const uint64_t operation : operations) caller.abandoned.push_back(Op(operation));
    h_.Make(KeepAliveCall{}, caller);
  }

  CoreHarness h_;
  std::vector<TestMember> members_;
};

TEST_F(AbandonedReceiveTest, PutsItsObjectBackAtItsOldPlace) {
  for (const char* const text : {"1", "2", "3"}) h_.As(members_[0], Send(1, text));
  EXPECT_EQ(Next(1), "1");
  EXPECT_EQ(Next(2, std::nullopt), "2");
  Abandon(members_[2], {1});  // of another member: nothing happens
  EXPECT_EQ(Next(3), "3");
  Abandon(members_[1], {3});
  Abandon(members_[1], {2});
  Abandon(members_[1], {1});
  EXPECT_EQ(Next(4), "1");
  EXPECT_EQ(Next(5), "2");
  EXPECT_EQ(Next(6), "3");
  EXPECT_EQ(Next(7), "none");
}

TEST_F(AbandonedReceiveTest, GivesItsObjectToAReceiverThatWaits) {
  h_.As(members_[0], Send(1, "1"));
  EXPECT_EQ(Next(1), "1");
  const CallId other = h_.As(members_[1], Receive(2), absl::Seconds(60), Op(2));
  const CallId waits = h_.As(members_[1], Receive(0), absl::Seconds(60), Op(3));
  EXPECT_TRUE(h_.Parked(waits));
  Abandon(members_[1], {1});
  ASSERT_NE(h_.Get<ReceiveReply>(waits), nullptr) << h_.StatusOf(waits);
  EXPECT_EQ(h_.Get<ReceiveReply>(waits)->payload.bytes(), "1");
  EXPECT_TRUE(h_.Parked(other)) << "it waits for rank 2";
}

TEST_F(AbandonedReceiveTest, TakesNothingLater) {
  const CallId waits = h_.As(members_[1], Receive(0), absl::Seconds(60), Op(1));
  Abandon(members_[1], {1});
  EXPECT_TRUE(absl::IsCancelled(h_.StatusOf(waits)));
  Abandon(members_[1], {2});  // has not come yet
  h_.As(members_[0], Send(1, "1"));
  EXPECT_EQ(h_.Get<ReceiveReply>(h_.As(members_[1], Receive(0), absl::Seconds(60), Op(2)))
                ->payload.bytes(),
            "");
  EXPECT_EQ(Next(3), "1");
}

TEST_F(AbandonedReceiveTest, SeveralAtOnceKeepTheirOrder) {
  h_.As(members_[0], Send(1, "1"));
  h_.As(members_[0], Send(1, "2"));
  EXPECT_EQ(Next(1), "1");
  EXPECT_EQ(Next(2), "2");
  const CallId first = h_.As(members_[1], Receive(0), absl::Seconds(60), Op(3));
  const CallId second = h_.As(members_[1], Receive(std::nullopt), absl::Seconds(60), Op(4));
  Abandon(members_[1], {2, 1});
  ASSERT_NE(h_.Get<ReceiveReply>(first), nullptr);
  ASSERT_NE(h_.Get<ReceiveReply>(second), nullptr);
  EXPECT_EQ(h_.Get<ReceiveReply>(first)->payload.bytes(), "1");
  EXPECT_EQ(h_.Get<ReceiveReply>(second)->payload.bytes(), "2");
}

// The answer was lost, so the loss of an object must be told again.
TEST_F(AbandonedReceiveTest, GetsTheSameDataLossAgain) {
  SendCall send = Send(1, "1");
  send.expiration = absl::Seconds(1);
  h_.As(members_[0], send);
  h_.Advance(absl::Seconds(2));
  const CallId first = h_.As(members_[1], Receive(0), absl::Seconds(1), Op(1));
  EXPECT_TRUE(absl::IsDataLoss(h_.StatusOf(first))) << h_.StatusOf(first);
  Abandon(members_[1], {1});
  const CallId again = h_.As(members_[1], Receive(0), absl::Seconds(1), Op(2));
  EXPECT_TRUE(absl::IsDataLoss(h_.StatusOf(again))) << h_.StatusOf(again);
  EXPECT_EQ(Next(3), "none");
}

TEST_F(AbandonedReceiveTest, DoesNotCountAsUnacknowledged) {
  Limits limits;
  limits.max_unacknowledged = 1;
  CoreHarness few(limits);
  std::vector<TestMember> members = few.Form(2);
  few.As(members[0], Send(1, "1"));
  few.As(members[1], Receive(0), absl::Seconds(1), Op(1));
  const auto refused = few.As(members[1], Receive(0), absl::Seconds(1), Op(2));
  EXPECT_TRUE(absl::IsResourceExhausted(few.StatusOf(refused)));
  Caller caller{few.key(), members[1].generation, members[1].session, Op(3),
                {},        members[1].identity};
  caller.abandoned = {Op(1)};
  const CallId again = few.Make(Receive(0), caller, absl::Seconds(1));
  ASSERT_NE(few.Get<ReceiveReply>(again), nullptr) << few.StatusOf(again);
  EXPECT_EQ(few.Get<ReceiveReply>(again)->payload.bytes(), "1");
}

}  // namespace
}  // namespace cohort::coordinator
