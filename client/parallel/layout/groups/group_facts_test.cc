#include "client/parallel/layout/groups/group_facts.h"

#include <string>
#include <utility>

#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A group with any given ranks, hosts and paths.
class SaidGroup final : public client::LoneGroup {
 public:
  SaidGroup(int rank, std::vector<std::string> hosts, std::vector<std::string> paths)
      : rank_(rank), hosts_(std::move(hosts)), paths_(std::move(paths)) {}

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(hosts_.size()); }
  const std::vector<std::string>& hosts() const override { return hosts_; }
  const std::vector<std::string>& paths() const override { return paths_; }

 private:
  const int rank_;
  const std::vector<std::string> hosts_;
  const std::vector<std::string> paths_;
};

// Rank 2 is on the machine of rank 0, in another container.
const SaidGroup& OnTwoMachines() {
  static const auto* const group = new SaidGroup(
      0, {"a", "a", "a", "b"}, {"self", "shared memory", "tcp 10.0.0.1:1", "tcp 10.0.0.2:1"});
  return *group;
}

TEST(GroupFactsTest, NeighboursWrapRound) {
  const SaidGroup last(2, {"a", "a", "a"}, {});
  EXPECT_EQ(FirstRank(last), 0);
  EXPECT_EQ(LastRank(last), 2);
  EXPECT_EQ(NextRank(last), 0);
  EXPECT_EQ(PreviousRank(last), 1);
  EXPECT_FALSE(IsFirstRank(last));
  EXPECT_TRUE(IsLastRank(last));
  EXPECT_EQ(PreviousRank(OnTwoMachines()), 3);
  const client::LoneGroup alone;
  EXPECT_EQ(NextRank(alone), 0);
  EXPECT_EQ(PreviousRank(alone), 0);
  EXPECT_TRUE(IsFirstRank(alone) && IsLastRank(alone));
}

TEST(GroupFactsTest, RanksAreTranslatedByTheMembers) {
  const RankList members = {4, 0, 6};
  EXPECT_EQ(*GlobalRank(members, 0), 4);
  EXPECT_EQ(*RankInGroup(members, 6), 2);
  EXPECT_EQ(GlobalRank(members, 3).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(GlobalRank(members, -1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(RankInGroup(members, 1).status().message()), HasSubstr("[4, 0, 6]"));
}

TEST(GroupFactsTest, AMachineIsNotItsMemory) {
  EXPECT_THAT(*SameHost(OnTwoMachines()), ElementsAre(true, true, true, false));
  EXPECT_THAT(*SameHost(OnTwoMachines(), 3), ElementsAre(false, false, false, true));
  EXPECT_EQ(NodeCount(OnTwoMachines()), 2);
  EXPECT_THAT(SharesMemory(OnTwoMachines()), ElementsAre(true, true, false, false));
  for (const int source : {-1, 4}) {
    EXPECT_EQ(SameHost(OnTwoMachines(), source).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace cohort::parallel
