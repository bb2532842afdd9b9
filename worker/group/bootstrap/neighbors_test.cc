#include "worker/group/bootstrap/neighbors.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::StartsWith;

v1::RankInfo Rank(const std::string& network, const std::string& folder = "",
                  uint64_t heap_bytes = 1) {
  v1::RankInfo info;
  info.set_machine("machine");
  info.set_host("machine/" + network);
  info.set_host_folder(folder);
  info.set_heap_bytes(heap_bytes);
  return info;
}

TEST(NeighborsTest, RanksOfOneNamespaceOrOneFolderAreNeighbors) {
  EXPECT_TRUE(AreNeighbors(Rank("a"), Rank("a")));
  EXPECT_FALSE(AreNeighbors(Rank("a"), Rank("b")));
  EXPECT_TRUE(AreNeighbors(Rank("a", "f"), Rank("b", "f")));
  EXPECT_FALSE(AreNeighbors(Rank("a", "f"), Rank("b", "g")));
  EXPECT_TRUE(AreNeighbors(Rank("a", "f"), Rank("a")));
  EXPECT_FALSE(HaveOneFolder(Rank("a"), Rank("a")));
}

TEST(NeighborsTest, TheFirstNeighborHandsOutMemory) {
  EXPECT_THAT(FirstRanks({Rank("a"), Rank("b"), Rank("a"), Rank("b")}), ElementsAre(0, 1, 0, 1));
  EXPECT_THAT(FirstRanks({Rank("a", "f"), Rank("b", "f"), Rank("c", "g"), Rank("d", "f")}),
              ElementsAre(0, 0, 2, 0));
}

// Each rank connects to its first rank alone, so that one has to be its neighbor.
TEST(NeighborsTest, AFolderOnSomeRanksAloneTakesNoMemoryFromTheOthers) {
  EXPECT_THAT(FirstRanks({Rank("a", "f"), Rank("a"), Rank("b", "f")}), ElementsAre(0, 0, 0));
  EXPECT_THAT(FirstRanks({Rank("a"), Rank("a", "f"), Rank("b", "f")}), ElementsAre(0, 0, 2));
}

TEST(NeighborsTest, ARankWithUnsharedMemoryIsAlone) {
  EXPECT_THAT(FirstRanks({Rank("a", "", 0), Rank("a"), Rank("a", "", 0), Rank("a")}),
              ElementsAre(0, 1, 2, 1));
}

TEST(NeighborsTest, OneTextForAllRanksOfAMachineSaysWhyTheyDoNotShareMemory) {
  RankInfos infos = {Rank("a"), Rank("b"), Rank("c")};
  infos[1].set_machine("another");
  EXPECT_THAT(WhyNotOneHost(infos, FirstRanks(infos), 0), StartsWith("ranks 0,2 do not all share"));
  EXPECT_EQ(WhyNotOneHost(infos, FirstRanks(infos), 2), WhyNotOneHost(infos, FirstRanks(infos), 0));
  EXPECT_EQ(WhyNotOneHost(infos, FirstRanks(infos), 1), "");
}

}  // namespace
}  // namespace cohort::worker
