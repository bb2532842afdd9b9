// A rank's connections to the others: shared memory and sockets. A communicator is made of them, in
// the process that connected the ranks or in one that receives them.
#ifndef COHORT_WORKER_GROUP_CONNECTIONS_CONNECTIONS_H_
#define COHORT_WORKER_GROUP_CONNECTIONS_CONNECTIONS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/id128.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/hierarchical/hierarchical_communicator.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/nccl/agreement/nccl_operation_log.h"
#include "worker/communicator/socket/mesh/mesh.h"
#include "worker/communicator/socket/socket_communicator.h"
#include "worker/communicator/wait_log.h"

namespace cohort::worker {

// Movable.
struct Connections {
  int rank = 0;
  Hosts hosts;  // which ranks share memory
  // By rank: how this rank reaches it, "self", "shared memory", "tcp 10.0.0.4:4123" or, with TLS,
  // "tls 10.0.0.4:4123".
  std::vector<std::string> paths;
  // By rank: the machine that it runs on.
  std::vector<std::string> machines;
  // Why not all ranks of this host share memory; empty if they do.
  std::string why_not;

  // The memory of this rank's host; null if this rank shares memory with no other.
  std::unique_ptr<HostMemory> memory;
  std::optional<Mesh> mesh;    // of all ranks; absent if they all share memory
  std::optional<Mesh> across;  // of one rank of each host, if there are two levels
  // The secret of the generation, if the ranks use TLS and the sockets are still plain:
  // SecureConnections comes before MakeCommunicator.
  std::optional<Id128> tls_secret;

  // The operation log of all ranks, if they have GPUs and all share memory.
  std::shared_ptr<const NcclOperationLog> operation_log;

  // Records for which ranks this rank sleeps; it outlives the communicator. Null: no record.
  WaitLog* waits = nullptr;
  // While this rank waits, threads that bring it work may need its processor. If set, it yields the
  // processor at once.
  bool gives_way = false;

  int size() const { return static_cast<int>(paths.size()); }
};

// A rank's part in the traffic between hosts.
struct Crossing {
  size_t host = 0;
  size_t index = 0;        // on its host
  bool crosses = false;    // whether it takes part in collectives between hosts
  std::vector<int> ranks;  // by host: the rank that it talks to
};
Crossing CrossingOf(const Hosts& hosts, int rank);
// The secret of the ranks of a crossing, each of which has its own.
Id128 SecretOfCrossing(const Id128& secret, const Crossing& crossing);

// The most file descriptors that a rank opens for a group, wherever the ranks are.
int MostDescriptorsOfGroup(int world_size);
// The same, once it is known which ranks share memory; never more than MostDescriptorsOfGroup.
int DescriptorsOfGroup(const Hosts& hosts, int rank);

// The options with which all ranks open their sockets to each other.
SocketOptions OptionsOfMesh();
SocketOptions OptionsOfCrossing(const Crossing& crossing);

// Errors: RESOURCE_EXHAUSTED; FAILED_PRECONDITION (SecureConnections was not called).
absl::StatusOr<std::unique_ptr<Communicator>> MakeCommunicator(Connections connections);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_CONNECTIONS_CONNECTIONS_H_
