// The calls and values that end with a lost member, and the values that only their owner may read.
#include <gtest/gtest.h>

#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using TestMember = CoreHarness::TestMember;

TEST(GroupEndsTest, StoreCallsOfALostMemberFailAtOnce) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(2);
  spec.fate = Fate::kReport;
  const std::vector<TestMember> members = h.Form(spec);
  GetCall get;
  get.keys = {"address"};
  get.wait = true;
  const CallId of_lost = h.As(members[1], get, absl::Seconds(300));
  const CallId of_other = h.As(members[0], get, absl::Seconds(300));
  h.Make(EvictCall{"w1", "replaced"}, Caller{});
  EXPECT_EQ(h.StatusOf(of_lost).code(), absl::StatusCode::kAborted) << h.StatusOf(of_lost);
  EXPECT_TRUE(h.Parked(of_other));
}

TEST(GroupEndsTest, AReceiveFromAnyRankFailsWhenTheLastOtherMemberIsLost) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(3);
  spec.fate = Fate::kReport;
  const std::vector<TestMember> members = h.Form(spec);
  const CallId receive = h.As(members[0], Receive(std::nullopt), absl::Seconds(300));
  h.Make(EvictCall{"w1", "replaced"}, Caller{});
  EXPECT_TRUE(h.Parked(receive));
  h.Make(EvictCall{"w2", "replaced"}, Caller{});
  ASSERT_EQ(h.StatusOf(receive).code(), absl::StatusCode::kAborted) << h.StatusOf(receive);
  ASSERT_NE(h.Find(receive)->context, nullptr);
  EXPECT_EQ(h.Find(receive)->context->cause.member, "w2");
  const CallId late = h.As(members[0], Receive(std::nullopt), absl::Seconds(300));
  EXPECT_EQ(h.StatusOf(late).code(), absl::StatusCode::kAborted) << h.StatusOf(late);
}

TEST(GroupEndsTest, ItsLostMembersStayCounted) {
  CoreHarness h;
  h.Form(2);
  h.Make(EvictCall{"w1", "test"}, Caller{});
  EXPECT_EQ(h.core().Stats().members_lost, 1);
  h.Make(CloseGroupCall{"over"}, Caller{});
  EXPECT_EQ(h.core().Stats().group_count, 0);
  EXPECT_EQ(h.core().Stats().members_lost, 1);
}

TEST(GroupEndsTest, AnUploadBelongsToTheMemberThatMadeIt) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(2);
  const auto* put = h.Get<PutBlobReply>(h.As(members[0], PutBlobCall{"secret"}));
  ASSERT_NE(put, nullptr);
  const int64_t blob = put->blob;
  EXPECT_EQ(h.StatusOf(h.As(members[1], GetBlobCall{blob})).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(h.StatusOf(h.As(members[0], GetBlobCall{blob})).ok());
}

TEST(GroupEndsTest, AnUploadThatNoCallTakesIsKeptForAMinute) {
  CoreHarness h;
  const std::vector<TestMember> members = h.Form(2);
  const int64_t blob = h.Get<PutBlobReply>(h.As(members[0], PutBlobCall{"secret"}))->blob;
  h.AdvanceAlive(absl::Seconds(59), members);
  EXPECT_TRUE(h.StatusOf(h.As(members[0], GetBlobCall{blob})).ok());
  h.AdvanceAlive(absl::Seconds(1), members);
  EXPECT_EQ(h.StatusOf(h.As(members[0], GetBlobCall{blob})).code(), absl::StatusCode::kNotFound);
  h.ForgetReplies();
  EXPECT_EQ(h.core().Stats().bytes_held, 0);
}

}  // namespace
}  // namespace cohort::coordinator
