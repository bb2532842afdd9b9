#include "worker/group/connections/connections.h"

#include <algorithm>
#include <utility>

#include "base/status_macros.h"
#include "worker/communicator/single/single_communicator.h"

namespace cohort::worker {
namespace {

constexpr int kOwnDescriptors = 8;
// For a rank on the same host: its memory, the connection to it and its process.
constexpr int kDescriptorsOfNeighbor = 3;
// The streams for large data, and one more.
int SocketsToRank() { return OptionsOfMesh().streams + 1; }

}  // namespace

Crossing CrossingOf(const Hosts& hosts, int rank) {
  Crossing crossing;
  bool even = true;
  for (size_t host = 0; host < hosts.size(); ++host) {
    const std::vector<int>& ranks = hosts[host];
    even = even && ranks.size() == hosts[0].size();
    const auto own = std::find(ranks.begin(), ranks.end(), rank);
    if (own == ranks.end()) continue;
    crossing.host = host;
    crossing.index = static_cast<size_t>(own - ranks.begin());
  }
  crossing.crosses = even || crossing.index == 0;
  if (!crossing.crosses) return crossing;
  for (const std::vector<int>& ranks : hosts) crossing.ranks.push_back(ranks[crossing.index]);
  return crossing;
}

Id128 SecretOfCrossing(const Id128& secret, const Crossing& crossing) {
  return {secret.high, secret.low + 1 + crossing.index};
}

int MostDescriptorsOfGroup(int world_size) {
  constexpr int kMostRanks = 1 << 20;
  // A neighbor has sockets too if there are other hosts. A rank of another host has two sets of
  // sockets at most.
  const int per_rank = kDescriptorsOfNeighbor + SocketsToRank();
  return kOwnDescriptors + per_rank * std::clamp(world_size - 1, 0, kMostRanks);
}

int DescriptorsOfGroup(const Hosts& hosts, int rank) {
  int size = 0;
  for (const std::vector<int>& host : hosts) size += static_cast<int>(host.size());
  const auto count = static_cast<int>(hosts.size());
  const Crossing crossing = CrossingOf(hosts, rank);
  const int neighbors = static_cast<int>(hosts[crossing.host].size()) - 1;
  int linked = 0;  // ranks linked by sockets
  if (count > 1) linked += size - 1;
  if (count > 1 && count < size && crossing.crosses) linked += count - 1;
  return kOwnDescriptors + kDescriptorsOfNeighbor * neighbors + SocketsToRank() * linked;
}

SocketOptions OptionsOfMesh() { return {}; }

SocketOptions OptionsOfCrossing(const Crossing& crossing) {
  SocketOptions options;
  options.names = crossing.ranks;
  return options;
}

absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(Connections connections) {
  const int rank = connections.rank;
  if (connections.size() == 1) return std::make_unique<SingleCommunicator>();
  if (connections.memory != nullptr) {
    connections.memory->waits = connections.waits;
    connections.memory->gives_way = connections.gives_way;
  }
  if (connections.tls_secret.has_value()) {
    return absl::FailedPreconditionError("the ranks use TLS, and the sockets are still plain");
  }
  if (connections.hosts.size() == 1) {
    return std::make_unique<HostCommunicator>(std::move(*connections.memory), rank);
  }
  SocketOptions of_mesh = OptionsOfMesh();
  of_mesh.waits = connections.waits;
  if (connections.gives_way) of_mesh.spin = absl::ZeroDuration();
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> mesh,
                          SocketCommunicator::Make(rank, *std::move(connections.mesh), of_mesh));
  if (connections.hosts.size() == connections.paths.size()) return mesh;
  const Crossing crossing = CrossingOf(connections.hosts, rank);
  Levels levels;
  levels.mesh = std::move(mesh);
  if (connections.memory == nullptr) {
    levels.inside = std::make_unique<SingleCommunicator>();
  } else {
    connections.memory->names = connections.hosts[crossing.host];
    levels.inside = std::make_unique<HostCommunicator>(std::move(*connections.memory),
                                                       static_cast<int>(crossing.index));
  }
  if (crossing.crosses) {
    SocketOptions of_crossing = OptionsOfCrossing(crossing);
    of_crossing.waits = connections.waits;
    of_crossing.spin = of_mesh.spin;
    COHORT_ASSIGN_OR_RETURN(levels.across,
                            SocketCommunicator::Make(static_cast<int>(crossing.host),
                                                     *std::move(connections.across), of_crossing));
  }
  return std::make_unique<HierarchicalCommunicator>(std::move(levels), connections.hosts);
}

}  // namespace cohort::worker
