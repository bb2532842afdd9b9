// Sends that carry the number of their place, and are read in the order of the numbers.
#include "coordinator/core/exchange/numbered_sends.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
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
