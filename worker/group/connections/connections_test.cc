// The ranks for which waits are recorded in a group of two levels: inside a host, and across hosts.
#include "worker/group/connections/connections.h"

#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "gtest/gtest.h"
#include "worker/communicator/hierarchical/hierarchical_communicator.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/host/shared/host_shared_memory.h"
#include "worker/communicator/socket/mesh/rank_listener.h"

namespace cohort::worker {
namespace {

Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }

std::vector<Mesh> ConnectAll(int size, int streams) {
  std::vector<Listener> listeners;
  MeshOptions options;
  options.secret = {1, 2};
  options.streams = streams;
  for (int rank = 0; rank < size; ++rank) {
    listeners.push_back(*Listener::Open("127.0.0.1", 0));
    options.addresses.push_back(listeners.back().address());
  }
  std::vector<Mesh> meshes(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank, options]() mutable {
      options.rank = rank;
      absl::StatusOr<Mesh> mesh =
          ConnectMesh(listeners[static_cast<size_t>(rank)], options, In(absl::Seconds(60)));
      EXPECT_TRUE(mesh.ok()) << mesh.status();
      if (mesh.ok()) meshes[static_cast<size_t>(rank)] = *std::move(mesh);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return meshes;
}

std::unique_ptr<HostMemory> Attach(const HostSharedMemory& space) {
  absl::StatusOr<HostSharedMemory> own = HostSharedMemory::Attach(dup(space.fd()), 2);
  EXPECT_TRUE(own.ok()) << own.status();
  return std::make_unique<HostMemory>(HostMemory{*std::move(own), RankHeaps(2), {}});
}

// Each pair of ranks has two sockets for large data and one for the rest.
TEST(ConnectionsTest, DescriptorsAreCountedByWhatIsOpened) {
  EXPECT_EQ(MostDescriptorsOfGroup(0), 8);
  EXPECT_EQ(MostDescriptorsOfGroup(1), 8);
  EXPECT_EQ(MostDescriptorsOfGroup(4), 8 + 3 * 6);
  EXPECT_EQ(DescriptorsOfGroup({{0}}, 0), 8);
  EXPECT_EQ(DescriptorsOfGroup({{0, 1, 2, 3}}, 1), 8 + 3 * 3);
  EXPECT_EQ(DescriptorsOfGroup({{0}, {1}, {2}}, 1), 8 + 2 * 3);
  // The first rank of each host crosses to the other.
  EXPECT_EQ(DescriptorsOfGroup({{0, 1, 2}, {3}}, 0), 8 + 2 * 3 + 3 * 3 + 3);
  EXPECT_EQ(DescriptorsOfGroup({{0, 1, 2}, {3}}, 1), 8 + 2 * 3 + 3 * 3);
  // If all hosts have equally many ranks, each rank crosses.
  EXPECT_EQ(DescriptorsOfGroup({{0, 1}, {2, 3}}, 1), 8 + 3 + 3 * 3 + 3);
}

// Rank 2 comes to the operation, but then waits on its own host. Rank 0 talks to it for rank 1 too,
// and records a wait for it across hosts.
TEST(ConnectionsTest, WaitsAcrossHostsAreLogged) {
  const Hosts hosts = {{0, 1}, {2}};
  const int streams = OptionsOfMesh().streams + 1;  // one for headers
  std::vector<Mesh> mesh = ConnectAll(3, streams);
  std::vector<Mesh> across = ConnectAll(2, streams);
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  const HostSharedMemory never_complete = *HostSharedMemory::Create(2);
  const auto log = std::make_unique<WaitLog>();
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    Connections connections;
    connections.rank = rank;
    connections.hosts = hosts;
    connections.paths = {"", "", ""};
    connections.memory = Attach(space);
    connections.mesh = std::move(mesh[static_cast<size_t>(rank)]);
    if (rank == 0) connections.across = std::move(across[0]);
    if (rank == 0) connections.waits = log.get();
    absl::StatusOr<std::unique_ptr<Communicator>> made = MakeCommunicator(std::move(connections));
    ASSERT_TRUE(made.ok()) << made.status();
    ranks.push_back(*std::move(made));
  }
  Levels levels;
  levels.mesh = *SocketCommunicator::Make(2, std::move(mesh[2]), OptionsOfMesh());
  levels.inside = std::make_unique<HostCommunicator>(std::move(*Attach(never_complete)), 0);
  levels.across =
      *SocketCommunicator::Make(1, std::move(across[1]), OptionsOfCrossing(CrossingOf(hosts, 2)));
  ranks.push_back(std::make_unique<HierarchicalCommunicator>(std::move(levels), hosts));

  const Instant deadline = In(absl::Seconds(2));
  std::vector<std::thread> threads;
  for (const auto& rank : ranks) {
    threads.emplace_back([&rank, deadline] {
      std::vector<float> numbers(100000);
      EXPECT_FALSE(rank->AllReduce(numbers.data(), numbers.data(), 100000, DataType::kF32,
                                   {ReduceOp::kSum}, deadline)
                       .ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<WaitedFor> waits = log->Read(3, 1);
  ASSERT_EQ(waits.size(), 1u);
  EXPECT_EQ(waits[0].rank, 2);
  EXPECT_GT(waits[0].time, absl::Milliseconds(500));
}

}  // namespace
}  // namespace cohort::worker
