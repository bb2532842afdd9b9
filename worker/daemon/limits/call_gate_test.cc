#include "worker/daemon/limits/call_gate.h"

#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CallGateTest, ASessionHasItsShareAndOthersHaveTheRest) {
  CallGate gate(3, 2);
  CallGate::Share greedy, modest;
  std::vector<CallGate::Pass> passes;
  for (int i = 0; i < 2; ++i) passes.push_back(*gate.Enter(greedy));
  const absl::Status refused = gate.Enter(greedy).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("2 calls of this session"), HasSubstr("--max-calls-per-session"),
                    HasSubstr("takes 3")));
  passes.push_back(*gate.Enter(modest));
  EXPECT_EQ(gate.active(), 3);
  const absl::Status full = gate.Enter(modest).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("as many as --max-calls allows"));
  passes.clear();
  EXPECT_EQ(gate.active(), 0);
  for (int i = 0; i < 2; ++i) passes.push_back(*gate.Enter(greedy));
}

TEST(CallGateTest, AnIdentityWithManySessionsLeavesOthersAQuarter) {
  CallGate gate(8, 4);
  CallGate::Share first({"spiffe://a"}), second({"spiffe://a"}), other({"spiffe://b"});
  std::vector<CallGate::Pass> passes;
  for (int i = 0; i < 4; ++i) passes.push_back(*gate.Enter(first));
  for (int i = 0; i < 2; ++i) passes.push_back(*gate.Enter(second));
  EXPECT_EQ(gate.Enter(second).status().message(),
            "6 calls of spiffe://a are in flight, as many as one identity may have of 8 "
            "(--max-calls)");
  for (int i = 0; i < 2; ++i) passes.push_back(*gate.Enter(other));
  passes.pop_back();
  passes.pop_back();
  passes.pop_back();
  EXPECT_TRUE(gate.Enter(second).ok());
}

TEST(CallGateTest, ATenantWithManyIdentitiesLeavesOthersAnEighth) {
  CallGate gate(8, 4);
  CallGate::Share first({"spiffe://a1", "a"}), second({"spiffe://a2", "a"});
  CallGate::Share other({"spiffe://b", "b"});
  std::vector<CallGate::Pass> passes;
  for (int i = 0; i < 4; ++i) passes.push_back(*gate.Enter(first));
  for (int i = 0; i < 3; ++i) passes.push_back(*gate.Enter(second));
  EXPECT_EQ(gate.Enter(second).status().message(),
            "7 calls of tenant a are in flight, as many as one tenant may have of 8 "
            "(--max-calls)");
  EXPECT_TRUE(gate.Enter(other).ok());
  passes.pop_back();
  EXPECT_TRUE(gate.Enter(second).ok());
}

TEST(CallGateTest, AMovedPassLeavesOnce) {
  CallGate gate(2, 2);
  CallGate::Share share;
  {
    CallGate::Pass pass = *gate.Enter(share);
    const CallGate::Pass moved = std::move(pass);
    EXPECT_EQ(gate.active(), 1);
  }
  EXPECT_TRUE(gate.AwaitIdle(Clock::Steady().Now()));
}

}  // namespace
}  // namespace cohort::worker
