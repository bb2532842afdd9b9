// The steps of connecting, at a scripted coordinator that knows one rank.
#include "worker/group/bootstrap/group_bootstrap.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/shm/heap.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/testing/fake_coordinator.h"
#include "grpcpp/support/status.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

// The coordinator is away twice, so that the first step takes a while.
TEST(GroupBootstrapTest, TheStepsShareOneDeadline) {
  client::FakeCoordinator coordinator;
  client::ProcessGroupOptions joining;
  joining.connection.address = coordinator.address();
  joining.group = "g";
  joining.rank = 0;
  joining.world_size = 2;
  const auto group = client::ProcessGroup::Create(joining);
  ASSERT_TRUE(group.ok()) << group.status();
  auto heap = shm::Heap::Create("bootstrap-test", size_t{1} << 20);
  ASSERT_TRUE(heap.ok()) << heap.status();
  BootstrapOptions options;
  options.heap = *std::move(heap);
  options.timeout = absl::Seconds(20);
  const grpc::Status away(grpc::StatusCode::UNAVAILABLE, "away");
  coordinator.FailNext("AllGather", {away, away});
  const auto connected = ConnectRanks(**group, coordinator.address(), options);
  EXPECT_TRUE(connected.ok()) << connected.status();
  const std::vector<client::SeenCall> rounds = coordinator.Seen("AllGather");
  ASSERT_EQ(rounds.size(), 4u);
  for (size_t i = 1; i < rounds.size(); ++i) EXPECT_LT(rounds[i].wait, rounds[i - 1].wait) << i;
}

}  // namespace
}  // namespace cohort::worker
