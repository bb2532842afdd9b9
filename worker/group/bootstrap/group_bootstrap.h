// Connects the ranks that the coordinator brought together.
#ifndef COHORT_WORKER_GROUP_BOOTSTRAP_GROUP_BOOTSTRAP_H_
#define COHORT_WORKER_GROUP_BOOTSTRAP_GROUP_BOOTSTRAP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/rpc/rank_tls.h"
#include "base/shm/heap.h"
#include "base/tensor/device.h"
#include "client/rendezvous/call/cancellation.h"
#include "client/rendezvous/process_group/process_group.h"
#include "worker/group/bootstrap/host_bootstrap.h"
#include "worker/group/connections/connections.h"

namespace cohort::worker {

struct BootstrapOptions {
  // The heap from which this rank's tensors are allocated; it outlives the communicator.
  std::shared_ptr<shm::Heap> heap;
  // The address to which other hosts connect, without a port. Empty: COHORT_ADVERTISED_HOST, the
  // interface of COHORT_SOCKET_IFNAME, or else the local address of this host towards the
  // coordinator. If that is a loopback address and there are ranks of other hosts, the rank takes
  // its local address towards one of them.
  std::string advertised_host;
  // Ranks with different names share no memory. Empty: this machine and its network namespace.
  std::string host_identity;
  // A folder in which ranks of one machine meet across its network namespaces, such as those of
  // containers that mount it (shm::HostFolder). Empty: COHORT_HOST_FOLDER; not set: no folder.
  std::string host_folder;
  // The same on all ranks.
  Placement placement = Placement::kHost;
  // TLS on the sockets to other hosts: all ranks use it, or none.
  TlsState tls = TlsState::kOff;
  absl::Duration timeout = absl::Seconds(30);
  // How long ranks of one host wait for each other before they go on by sockets.
  absl::Duration host_window = absl::Seconds(5);
  // Ends waits at the coordinator early, with its reason. May be null.
  std::shared_ptr<client::Cancellation> cancellation;
  // Called with the most file descriptors that the rank opens for the group: first before it opens
  // any. The second call comes once it is known which ranks share memory; its count is never
  // larger. An error ends ConnectRanks. May be null.
  std::function<absl::Status(int world_size, int descriptors)> take_descriptors;
};

struct ConnectedRanks {
  Connections connections;
  // Connections to ranks of this host: each closes when the process at its other end ends.
  std::vector<HostLink> links;
  // Why ranks that might share memory do not, as reported by any rank; each text once.
  std::vector<std::string> why_not_of_all;
};

// Connects all ranks of `group`'s generation; all call it. Blocks for at most the timeout. The
// first round through the coordinator exchanges how each rank can be reached. After ranks of one
// host have connected, the second exchanges which ranks share memory. A third follows if there are
// several hosts and ranks that share memory. If the ranks use TLS, the caller goes on with
// SecureConnections. Errors: those of ProcessGroup::AllGather (naming the
// missing ranks); FAILED_PRECONDITION (ranks of another version); INVALID_ARGUMENT, on all ranks
// alike (different placements); FAILED_PRECONDITION, on all ranks alike (some use TLS between
// hosts, a rank advertises a loopback address to other hosts, or a rank cannot use its host
// folder); UNAVAILABLE, DEADLINE_EXCEEDED and RESOURCE_EXHAUSTED name the rank that could not be
// connected. A rank that cannot connect ends the generation, and the ranks that wait for it get its
// reason at once, as UNAVAILABLE.
absl::StatusOr<ConnectedRanks> ConnectRanks(client::ProcessGroup& group,
                                            const std::string& coordinator_address,
                                            const BootstrapOptions& options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_BOOTSTRAP_GROUP_BOOTSTRAP_H_
