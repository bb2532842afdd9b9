// What a rank has of the others once they have met: memory that they share, and sockets. A
// communicator is made of it, by the process that met them or by one that it was handed to.
#ifndef COHORT_WORKER_GROUP_CONNECTIONS_H_
#define COHORT_WORKER_GROUP_CONNECTIONS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/hierarchical/hierarchical_communicator.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/nccl/nccl_board.h"
#include "worker/communicator/socket/mesh.h"
#include "worker/communicator/socket/socket_communicator.h"
#include "worker/communicator/wait_log.h"

namespace cohort::worker {

// Movable.
struct Connections {
  int rank = 0;
  Hosts hosts;  // which ranks share memory
  // By rank: how this rank reaches it, "self", "shared memory" or "tcp 10.0.0.4:4123".
  std::vector<std::string> paths;
  // By rank: the machine that it runs on.
  std::vector<std::string> machines;
  // Why not all ranks of this host share memory; empty if they do.
  std::string why_not;

  // Of this rank's host; none if it shares with nobody.
  std::unique_ptr<HostMemory> memory;
  std::optional<Mesh> mesh;    // of all ranks; none if they all share memory
  std::optional<Mesh> across;  // of one rank of each host, where there are two levels

  // Of all ranks, where they have GPUs and all share memory.
  std::shared_ptr<const NcclBoard> board;

  // Of the rank, and outlives the communicator; null: nobody wants to know for whom it sleeps.
  WaitLog* waits = nullptr;
  // While this rank waits, threads that bring it work may need its processor: it offers it at once.
  bool gives_way = false;

  int size() const { return static_cast<int>(paths.size()); }
};

// Where a rank stands between hosts.
struct Crossing {
  size_t host = 0;
  size_t place = 0;        // on its host
  bool crosses = false;    // whether it is one of those who talk to other hosts for all
  std::vector<int> ranks;  // by host, whom it talks to
};
Crossing CrossingOf(const Hosts& hosts, int rank);

// How many file descriptors a rank has open for a group at most, wherever the ranks are.
int MostDescriptorsOfGroup(int world_size);
// The same, once it is known which ranks share memory. It is never more.
int DescriptorsOfGroup(const Hosts& hosts, int rank);

// As all sockets between ranks are opened.
SocketOptions OptionsOfMesh();
SocketOptions OptionsOfCrossing(const Crossing& crossing);

// Errors: RESOURCE_EXHAUSTED.
absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(Connections connections);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_CONNECTIONS_H_
