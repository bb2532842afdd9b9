// What ends when a member is lost, and what stays its own while it lives.
#include <gtest/gtest.h>

#include "coordinator/core/testing/calls.h"
#include "coordinator/core/testing/core_harness.h"

namespace cohort::coordinator {
namespace {

using Seat = CoreHarness::Seat;

TEST(GroupEndsTest, StoreCallsOfALostMemberFailAtOnce) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(2);
  spec.fate = Fate::kReport;
  const std::vector<Seat> seats = h.Form(spec);
  GetCall get;
  get.keys = {"address"};
  get.wait = true;
  const CallId of_lost = h.As(seats[1], get, absl::Seconds(300));
  const CallId of_other = h.As(seats[0], get, absl::Seconds(300));
  h.Make(EvictCall{"w1", "replaced"}, Caller{});
  EXPECT_EQ(h.StatusOf(of_lost).code(), absl::StatusCode::kAborted) << h.StatusOf(of_lost);
  EXPECT_TRUE(h.Parked(of_other));
}

TEST(GroupEndsTest, AReceiveFromAnyRankFailsWhenTheLastOtherMemberIsLost) {
  CoreHarness h;
  GroupSpec spec = CoreHarness::Fixed(3);
  spec.fate = Fate::kReport;
  const std::vector<Seat> seats = h.Form(spec);
  const CallId receive = h.As(seats[0], Receive(std::nullopt), absl::Seconds(300));
  h.Make(EvictCall{"w1", "replaced"}, Caller{});
  EXPECT_TRUE(h.Parked(receive));
  h.Make(EvictCall{"w2", "replaced"}, Caller{});
  ASSERT_EQ(h.StatusOf(receive).code(), absl::StatusCode::kAborted) << h.StatusOf(receive);
  ASSERT_NE(h.Find(receive)->context, nullptr);
  EXPECT_EQ(h.Find(receive)->context->cause.member, "w2");
  const CallId late = h.As(seats[0], Receive(std::nullopt), absl::Seconds(300));
  EXPECT_EQ(h.StatusOf(late).code(), absl::StatusCode::kAborted) << h.StatusOf(late);
}

TEST(GroupEndsTest, AnUploadBelongsToTheMemberThatMadeIt) {
  CoreHarness h;
  const std::vector<Seat> seats = h.Form(2);
  const auto* put = h.Get<PutBlobReply>(h.As(seats[0], PutBlobCall{"secret"}));
  ASSERT_NE(put, nullptr);
  const int64_t blob = put->blob;
  EXPECT_EQ(h.StatusOf(h.As(seats[1], GetBlobCall{blob})).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(h.StatusOf(h.As(seats[0], GetBlobCall{blob})).ok());
}

}  // namespace
}  // namespace cohort::coordinator
