#include <unistd.h>

#include <thread>

#include "worker/communicator/hierarchical/hierarchical_communicator.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/host/shared/host_shared_memory.h"
#include "worker/communicator/socket/mesh/rank_listener.h"
#include "worker/communicator/socket/socket_communicator.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

// Returns communicators that are connected over loopback, by rank.
Communicators Connect(size_t count, Id128 secret) {
  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
  for (size_t i = 0; i < count; ++i) {
    absl::StatusOr<Listener> listener = Listener::Open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok()) << listener.status();
    addresses.push_back(listener->address());
    listeners.push_back(*std::move(listener));
  }
  Communicators communicators(count);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < count; ++i) {
    threads.emplace_back([&, i] {
      auto connected = SocketCommunicator::Connect(static_cast<int>(i), listeners[i], addresses,
                                                   secret, {}, ConformanceTest::Soon());
      EXPECT_TRUE(connected.ok()) << connected.status();
      communicators[i] = *std::move(connected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return communicators;
}

// Hosts of `per_host` ranks each; the last may have fewer. Ranks go to the hosts in turn, so that a
// host's ranks are not neighbours.
Hosts MakeHosts(int size, int per_host) {
  const int count = (size + per_host - 1) / per_host;
  Hosts hosts(static_cast<size_t>(count));
  for (int rank = 0; rank < size; ++rank) hosts[static_cast<size_t>(rank % count)].push_back(rank);
  return hosts;
}

Communicators CreateWith(int size, int per_host) {
  const Hosts hosts = MakeHosts(size, per_host);
  Communicators mesh = Connect(static_cast<size_t>(size), {1, 1});
  std::vector<Levels> levels(static_cast<size_t>(size));
  bool even = true;
  for (const std::vector<int>& host : hosts) {
    even = even && host.size() == hosts[0].size();
    absl::StatusOr<HostSharedMemory> space =
        HostSharedMemory::Create(static_cast<int>(host.size()));
    EXPECT_TRUE(space.ok()) << space.status();
    for (size_t index = 0; index < host.size(); ++index) {
      absl::StatusOr<HostSharedMemory> own =
          HostSharedMemory::Attach(dup(space->fd()), static_cast<int>(host.size()));
      EXPECT_TRUE(own.ok()) << own.status();
      levels[static_cast<size_t>(host[index])].inside = std::make_unique<HostCommunicator>(
          HostMemory{*std::move(own), RankHeaps(host.size()), host}, static_cast<int>(index));
    }
  }
  for (size_t index = 0; index < (even ? hosts[0].size() : 1); ++index) {
    Communicators across = Connect(hosts.size(), {2, index});
    for (size_t host = 0; host < hosts.size(); ++host) {
      levels[static_cast<size_t>(hosts[host][index])].across = std::move(across[host]);
    }
  }
  Communicators ranks;
  for (size_t rank = 0; rank < levels.size(); ++rank) {
    levels[rank].mesh = std::move(mesh[rank]);
    ranks.push_back(std::make_unique<HierarchicalCommunicator>(std::move(levels[rank]), hosts));
  }
  return ranks;
}

INSTANTIATE_TEST_SUITE_P(Even, ConformanceTest,
                         ::testing::Values(Backend{
                             "even", {2, 4, 8}, [](int size) { return CreateWith(size, 2); }}));
INSTANTIATE_TEST_SUITE_P(Uneven, ConformanceTest,
                         ::testing::Values(Backend{
                             "uneven", {3, 5, 7}, [](int size) { return CreateWith(size, 2); }}));

}  // namespace
}  // namespace cohort::worker
