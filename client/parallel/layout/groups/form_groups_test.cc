// How long ranks wait for each other while groups form. Tests of the formed groups:
// tests/parallel/layout_test.cc.
#include "client/parallel/layout/groups/form_groups.h"

#include <memory>
#include <string>
#include <vector>

#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::SizeIs;

constexpr absl::Duration kTimeout = absl::Seconds(7);
// The time in which worker::AttachedGroup takes over the group from its daemon.
constexpr absl::Duration kSend = absl::Seconds(10);

// A group that records how long its ranks wait for each other.
class WaitingGroup : public client::LoneGroup {
 public:
  std::vector<absl::Duration> waits;

  absl::StatusOr<std::vector<std::string>> AllGatherObjects(
      absl::string_view object, const client::CallOptions& options) override {
    waits.push_back(options.timeout.value_or(absl::InfiniteDuration()));
    return LoneGroup::AllGatherObjects(object, options);
  }
};

Proposal OfGroups() {
  Proposal proposal;
  proposal.what = "groups";
  return proposal;
}

// A rank that fails at once waits until the other ranks' calls can have ended: each waits thrice.
TEST(FormGroupsTest, AFailedRankWaitsForRanksThatStillTry) {
  WaitingGroup world;
  const client::GroupFactory failing =
      [](const client::PlannedRank& place) -> absl::StatusOr<std::unique_ptr<client::Group>> {
    EXPECT_LE(place.timeout, kTimeout);
    return absl::ResourceExhaustedError("no GPU");
  };
  const auto formed = FormGroups(world, OfGroups(), {{"tensor", {0}}}, failing, kTimeout);
  EXPECT_TRUE(absl::IsResourceExhausted(formed.status())) << formed.status();
  ASSERT_THAT(world.waits, SizeIs(2));
  EXPECT_EQ(world.waits[0], kTimeout);
  EXPECT_GT(world.waits[1], 3 * kTimeout + kSend);
}

TEST(FormGroupsTest, GroupsOfOnePlanShareTheTimeout) {
  WaitingGroup world;
  std::vector<absl::Duration> given;
  const client::GroupFactory remembering =
      [&](const client::PlannedRank& place) -> absl::StatusOr<std::unique_ptr<client::Group>> {
    given.push_back(place.timeout);
    return std::make_unique<client::LoneGroup>();
  };
  const auto formed =
      FormGroups(world, OfGroups(), {{"tensor", {0}}, {"data", {0}}}, remembering, kTimeout);
  ASSERT_TRUE(formed.ok()) << formed.status();
  EXPECT_THAT(*formed, SizeIs(2));
  ASSERT_THAT(given, SizeIs(2));
  EXPECT_LT(given[1], given[0]);
}

}  // namespace
}  // namespace cohort::parallel
