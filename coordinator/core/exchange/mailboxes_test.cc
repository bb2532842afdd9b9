// Objects between two ranks: their limits, the answers that report the fate of an object, and
// numbered sends.
#include "coordinator/core/exchange/mailboxes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

Id128 Op(uint64_t n) { return Id128{0x0f, n}; }

SendCall Numbered(int destination, int64_t order, const std::string& tag = "") {
  SendCall call = Send(destination, absl::StrCat("object ", order), tag);
  call.order = order;
  return call;
}

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

class NumberedSendsTest : public ::testing::Test {
 protected:
  explicit NumberedSendsTest(const Limits& limits = Limits{}) : h_(limits), members_(h_.Form(3)) {}

  std::string NextObject(int source = 0, const std::string& tag = "") {
    const CallId id = h_.As(members_[1], Receive(source, tag), absl::Milliseconds(1));
    const auto* reply = h_.Get<ReceiveReply>(id);
    if (reply != nullptr) return reply->payload.bytes();
    h_.Cancel(id);
    return "none";
  }
  std::string TextOf(CallId id) { return std::string(h_.StatusOf(id).message()); }

  CoreHarness h_;
  std::vector<TestMember> members_;
};

TEST_F(NumberedSendsTest, AreReadInTheOrderOfTheirNumbersHoweverTheyCome) {
  std::mt19937 random(20250117);
  SCOPED_TRACE("seed 20250117");
  std::vector<int> orders(200);
  for (int i = 0; i < 200; ++i) orders[i] = i + 1;
  std::shuffle(orders.begin(), orders.end(), random);
  std::vector<CallId> sends;
  for (int order : orders) {
    sends.push_back(h_.As(members_[0], Numbered(1, order), absl::Seconds(60), Op(order)));
    if (random() % 4 == 0) h_.As(members_[2], Numbered(1, 1 + static_cast<int>(random() % 3)));
  }
  for (CallId id : sends) EXPECT_NE(h_.Get<SendReply>(id), nullptr) << h_.StatusOf(id);
  for (int order = 1; order <= 200; ++order)
    EXPECT_EQ(NextObject(), absl::StrCat("object ", order));
  EXPECT_EQ(NextObject(), "none");
}

TEST_F(NumberedSendsTest, AnEarlyOneIsNeitherAcknowledgedNorRead) {
  const CallId receive = h_.As(members_[1], Receive(0), absl::Seconds(60));
  const CallId second = h_.As(members_[0], Numbered(1, 2));
  EXPECT_TRUE(h_.Parked(second));
  EXPECT_TRUE(h_.Parked(receive));
  EXPECT_EQ(h_.core().Stats().waiter_count, 2);
  const auto* missing = h_.Get<WhoIsMissingReply>(h_.Make(WhoIsMissingCall{}, Caller{}));
  ASSERT_EQ(missing->waits.size(), 2u);
  EXPECT_THAT(absl::StrCat(missing->waits[0].operation, missing->waits[1].operation),
              HasSubstr("send #2 of rank 0 to rank 1 after #1"));
  const CallId first = h_.As(members_[0], Numbered(1, 1));
  EXPECT_EQ(h_.Get<ReceiveReply>(receive)->payload.bytes(), "object 1");
  EXPECT_LT(h_.Get<SendReply>(first)->sequence, h_.Get<SendReply>(second)->sequence);
  EXPECT_EQ(NextObject(), "object 2");
}

TEST_F(NumberedSendsTest, AGapThatIsNeverFilledEndsWithAnErrorThatNamesIt) {
  h_.As(members_[0], Numbered(1, 1, "grads"));
  const CallId third = h_.As(members_[0], Numbered(1, 3, "grads"), absl::Seconds(7));
  h_.Advance(absl::Seconds(7));
  EXPECT_EQ(h_.StatusOf(third).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(third),
              AllOf(HasSubstr("send #3 of rank 0 to rank 1 tag \"grads\""), HasSubstr("7s for #2"),
                    HasSubstr("group g"), HasSubstr("was not sent")));
  // Its number is free, and the sequence goes on.
  const CallId again = h_.As(members_[0], Numbered(1, 3, "grads"));
  h_.As(members_[0], Numbered(1, 2, "grads"));
  EXPECT_TRUE(h_.StatusOf(again).ok());
  h_.ForgetReplies();
  for (int order = 1; order <= 3; ++order)
    EXPECT_EQ(NextObject(0, "grads"), absl::StrCat("object ", order));
}

TEST_F(NumberedSendsTest, AUsedNumberIsRefusedUnlessItIsARepeat) {
  const CallId first = h_.As(members_[0], Numbered(1, 1), absl::Seconds(1), Op(1));
  const CallId repeat = h_.As(members_[0], Numbered(1, 1), absl::Seconds(1), Op(1));
  EXPECT_EQ(h_.Get<SendReply>(repeat)->sequence, h_.Get<SendReply>(first)->sequence);
  const CallId used = h_.As(members_[0], Numbered(1, 1), absl::Seconds(1), Op(2));
  EXPECT_EQ(h_.StatusOf(used).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(TextOf(used), HasSubstr("the next is #2"));

  const CallId held = h_.As(members_[0], Numbered(1, 3), absl::Seconds(60), Op(3));
  const CallId other = h_.As(members_[0], Numbered(1, 3), absl::Seconds(60), Op(4));
  EXPECT_EQ(h_.StatusOf(other).code(), absl::StatusCode::kAlreadyExists);
  const CallId held_again = h_.As(members_[0], Numbered(1, 3), absl::Seconds(60), Op(3));
  EXPECT_EQ(h_.StatusOf(held).code(), absl::StatusCode::kCancelled);
  EXPECT_TRUE(h_.Parked(held_again));
  h_.As(members_[0], Numbered(1, 2));
  EXPECT_TRUE(h_.StatusOf(held_again).ok());
}

TEST_F(NumberedSendsTest, GoOnAfterARestartWhereTheyWere) {
  h_.As(members_[0], Numbered(1, 1), absl::Seconds(1), Op(1));
  h_.As(members_[0], Numbered(1, 2), absl::Seconds(1), Op(2));
  EXPECT_EQ(NextObject(), "object 1");
  EXPECT_EQ(NextObject(), "object 2");
  h_.As(members_[0], Numbered(1, 4), absl::Seconds(60),
        Op(4));  // held: not acknowledged, so not kept
  h_.Restart();
  const CallId fourth = h_.As(members_[0], Numbered(1, 4), absl::Seconds(60), Op(4));
  EXPECT_TRUE(h_.Parked(fourth));
  EXPECT_EQ(h_.StatusOf(h_.As(members_[0], Numbered(1, 2), absl::Seconds(1), Op(22))).code(),
            absl::StatusCode::kAlreadyExists);
  h_.As(members_[0], Numbered(1, 3), absl::Seconds(1), Op(3));
  EXPECT_EQ(NextObject(), "object 3");
  EXPECT_EQ(NextObject(), "object 4");
}

TEST_F(NumberedSendsTest, BeginAnewInEachGeneration) {
  h_.As(members_[0], Numbered(1, 1));
  const CallId held = h_.As(members_[0], Numbered(1, 5), absl::Seconds(60));
  h_.As(members_[2], ReportErrorCall{"disk on fire", true, {}});
  EXPECT_EQ(h_.StatusOf(held).code(), absl::StatusCode::kAborted);
  h_.Reform(members_, CoreHarness::Fixed(3));
  EXPECT_TRUE(h_.StatusOf(h_.As(members_[0], Numbered(1, 1))).ok());
  EXPECT_EQ(NextObject(), "object 1");
}

TEST_F(NumberedSendsTest, EndWithTheirReceiver) {
  h_.As(members_[0], Numbered(1, 2), absl::Seconds(60));
  const CallId held = h_.As(members_[0], Numbered(1, 3), absl::Seconds(60));
  h_.As(members_[1], LeaveCall{"done"});
  EXPECT_EQ(h_.StatusOf(held).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(h_.StatusOf(h_.As(members_[0], Numbered(1, 4))).code(), absl::StatusCode::kAborted);
  h_.ForgetReplies();
  EXPECT_EQ(h_.core().Stats().bytes_held, 0);
  EXPECT_EQ(h_.core().Stats().waiter_count, 0);
}

class FewNumberedSendsTest : public NumberedSendsTest {
 protected:
  static Limits Few() {
    Limits limits;
    limits.max_send_window = 3;
    limits.max_ordered_mailboxes = 2;
    limits.max_mailbox_depth = 2;
    return limits;
  }
  FewNumberedSendsTest() : NumberedSendsTest(Few()) {}
};

TEST_F(FewNumberedSendsTest, LimitsNameThemselves) {
  for (int order = 2; order <= 3; ++order)
    EXPECT_TRUE(h_.Parked(h_.As(members_[0], Numbered(1, order, "a"))));
  const CallId far = h_.As(members_[0], Numbered(1, 4, "a"));
  EXPECT_EQ(h_.StatusOf(far).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(far),
              AllOf(HasSubstr("max_send_window is 3"), HasSubstr("#1, which has not come")));
  h_.As(members_[0], Numbered(1, 1, "b"));
  const CallId third = h_.As(members_[0], Numbered(1, 1, "c"));
  EXPECT_EQ(h_.StatusOf(third).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(third), HasSubstr("max_ordered_mailboxes is 2"));
}

// A mailbox without a send that was accepted is forgotten with the last one that waits.
TEST_F(FewNumberedSendsTest, SendsThatWereNeverAcceptedCountForNothing) {
  for (const char* tag : {"a", "b", "c", "d"}) {
    h_.Cancel(h_.As(members_[0], Numbered(1, 2, tag)));
    EXPECT_EQ(h_.StatusOf(h_.As(members_[0], Numbered(1, 9, tag))).code(),
              absl::StatusCode::kResourceExhausted);
  }
  EXPECT_TRUE(h_.StatusOf(h_.As(members_[0], Numbered(1, 1, "e"))).ok());
}

// A full mailbox refuses the send that is next; its number stays free, and those behind it wait
// for it.
TEST_F(FewNumberedSendsTest, AFullMailboxStopsTheSequenceWithoutALoss) {
  const CallId third = h_.As(members_[0], Numbered(1, 3));
  h_.As(members_[0], Numbered(1, 1));
  h_.As(members_[0], Numbered(1, 2));
  EXPECT_EQ(h_.StatusOf(third).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(third), HasSubstr("max_mailbox_depth"));
  const CallId fourth = h_.As(members_[0], Numbered(1, 4));
  EXPECT_TRUE(h_.Parked(fourth));
  EXPECT_EQ(NextObject(), "object 1");
  EXPECT_EQ(NextObject(), "object 2");
  h_.As(members_[0], Numbered(1, 3));
  EXPECT_EQ(NextObject(), "object 3");
  EXPECT_EQ(NextObject(), "object 4");
}

}  // namespace
}  // namespace cohort::coordinator
