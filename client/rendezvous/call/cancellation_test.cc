#include "client/rendezvous/call/cancellation.h"

#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using ::testing::ElementsAre;

TEST(CancellationTest, NotifiesEachListenerOnceAndKeepsTheFirstReason) {
  Cancellation cancellation;
  EXPECT_TRUE(cancellation.reason().ok());
  std::vector<std::string> reasons;
  const auto on_cancel = [&](const absl::Status& reason) {
    reasons.emplace_back(reason.message());
  };
  const Cancellation::Listener stays(cancellation, on_cancel);
  auto goes = std::make_unique<Cancellation::Listener>(cancellation, on_cancel);
  goes.reset();
  cancellation.Cancel(absl::AbortedError("first"));
  cancellation.Cancel(absl::AbortedError("second"));
  EXPECT_THAT(reasons, ElementsAre("first"));
  EXPECT_EQ(cancellation.reason(), absl::AbortedError("first"));
  const Cancellation::Listener late(cancellation, on_cancel);
  EXPECT_THAT(reasons, ElementsAre("first", "first"));
}

TEST(CancellationTest, OneMayEndAnother) {
  Cancellation all, one;
  const Cancellation::Listener chain(all, [&](const absl::Status& why) { one.Cancel(why); });
  all.Cancel(absl::CancelledError("enough"));
  EXPECT_EQ(one.reason(), absl::CancelledError("enough"));
}

}  // namespace
}  // namespace cohort::client
