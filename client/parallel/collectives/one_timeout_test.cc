// A function that makes several calls of the group has one timeout for all of them.
#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "client/collective/testing/lone_group.h"
#include "client/parallel/collectives/collectives.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(60);

// Records the timeout of each call, and lets some time pass.
class TimedGroup : public client::LoneGroup {
 public:
  std::vector<absl::Duration> given;

  absl::Status CopyAll(absl::Span<const client::TensorCopy> copies,
                       const client::CallOptions& call) override {
    Pass(call);
    return LoneGroup::CopyAll(copies, call);
  }
  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   const client::CallOptions& options) override {
    Pass(options);
    return LoneGroup::Run(call, input, output, options);
  }

 private:
  void Pass(const client::CallOptions& call) {
    given.push_back(call.timeout.value_or(absl::InfiniteDuration()));
    const Instant begun = Clock::Steady().Now();
    while (Clock::Steady().Now() - begun < absl::Milliseconds(1)) {
    }
  }
};

// Each call's timeout is shorter by at least the time of the calls before.
void ExpectOneTimeout(const TimedGroup& group, size_t calls) {
  ASSERT_EQ(group.given.size(), calls);
  EXPECT_LE(group.given[0], kTimeout);
  for (size_t i = 1; i < calls; ++i) {
    EXPECT_LE(group.given[i], group.given[i - 1] - absl::Milliseconds(1));
  }
}

TEST(OneTimeoutTest, ScatterHasOneTimeout) {
  TimedGroup group;
  const std::vector<Tensor> parts = {Tensor::Zeros(DataType::kF32, {4})};
  ASSERT_TRUE(Scatter(group, parts, {.call = {kTimeout}}).ok());
  ExpectOneTimeout(group, 2);
}

TEST(OneTimeoutTest, ABroadcastThatKeepsItsInputHasOneTimeout) {
  TimedGroup group;
  ASSERT_TRUE(Broadcast(group, Tensor::Zeros(DataType::kF32, {4}), {.call = {kTimeout}}).ok());
  ExpectOneTimeout(group, 2);
}

}  // namespace
}  // namespace cohort::parallel
