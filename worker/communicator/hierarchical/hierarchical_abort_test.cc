// An abort reaches the ranks that wait in any of the levels, on other hosts too.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/abort_error.h"
#include "gtest/gtest.h"
#include "worker/communicator/hierarchical/hierarchical_communicator.h"
#include "worker/communicator/single/single_communicator.h"
#include "worker/communicator/socket/testing/socket_group.h"

namespace cohort::worker {
namespace {

TEST(HierarchicalAbortTest, ReachesARankThatWaitsForOtherHosts) {
  const TestGroup mesh_group(2);
  const TestGroup across_group(2);
  auto mesh = mesh_group.ConnectAll();
  auto across = across_group.ConnectAll();
  Communicator* const across_of_1 = across[1].get();
  std::vector<std::unique_ptr<HierarchicalCommunicator>> ranks;
  for (size_t rank = 0; rank < 2; ++rank) {
    Levels levels;
    levels.mesh = std::move(mesh[rank]);
    levels.inside = std::make_unique<SingleCommunicator>();
    levels.across = std::move(across[rank]);
    ranks.push_back(std::make_unique<HierarchicalCommunicator>(std::move(levels), Hosts{{0}, {1}}));
  }
  absl::Status status;
  std::thread waits([&] { status = across_of_1->Barrier(Soon()); });
  ranks[0]->Abort("rank 0 aborted: enough");
  waits.join();
  EXPECT_EQ(status, AbortError("rank 0 aborted: enough"));
}

}  // namespace
}  // namespace cohort::worker
