// Where the planes meet: ranks that the coordinator brought together become a communicator.
#ifndef COHORT_WORKER_GROUP_GROUP_BOOTSTRAP_H_
#define COHORT_WORKER_GROUP_GROUP_BOOTSTRAP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/shm/heap.h"
#include "client/rendezvous/process_group.h"
#include "worker/communicator/communicator.h"
#include "worker/group/host_watch.h"

namespace cohort::worker {

struct BootstrapOptions {
  // From which this rank's tensors are allocated; it outlives the communicator.
  std::shared_ptr<shm::Heap> heap;
  // Where other hosts connect to, without a port. Empty: the address by which this host reaches the
  // coordinator.
  std::string advertised_host;
  // Ranks with different names share no memory. Empty: this machine and its network namespace.
  std::string host_identity;
  absl::Duration timeout = absl::Seconds(30);
  // How long ranks of one host wait for each other before they go on by sockets.
  absl::Duration host_window = absl::Seconds(5);
};

struct FormedCommunicator {
  std::unique_ptr<Communicator> communicator;
  // By rank: how this rank reaches it, "self", "shared memory" or "tcp 10.0.0.4:4123".
  std::vector<std::string> paths;
  // Why not all ranks of this host share memory; empty if they do.
  std::string why_not;
  std::unique_ptr<HostWatch> watch;  // goes before the communicator
};

// All ranks of `group`'s generation call it; blocks for at most the timeout. Two rounds through the
// coordinator: how each can be reached; then, once those of a host have met, who shares memory with
// whom. Errors: those of ProcessGroup::AllGather (naming who is missing); FAILED_PRECONDITION
// (ranks of another version); UNAVAILABLE, DEADLINE_EXCEEDED, RESOURCE_EXHAUSTED name the rank that
// could not be connected.
absl::StatusOr<FormedCommunicator> FormCommunicator(client::ProcessGroup& group,
                                                    const std::string& coordinator_address,
                                                    const BootstrapOptions& options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GROUP_BOOTSTRAP_H_
