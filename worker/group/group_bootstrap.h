// Where the planes meet: ranks that the coordinator brought together are connected.
#ifndef COHORT_WORKER_GROUP_GROUP_BOOTSTRAP_H_
#define COHORT_WORKER_GROUP_GROUP_BOOTSTRAP_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/device.h"
#include "base/shm/heap.h"
#include "client/rendezvous/cancellation.h"
#include "client/rendezvous/process_group.h"
#include "worker/group/connections.h"
#include "worker/group/host_formation.h"

namespace cohort::worker {

struct BootstrapOptions {
  // From which this rank's tensors are allocated; it outlives the communicator.
  std::shared_ptr<shm::Heap> heap;
  // Where other hosts connect to, without a port. Empty: the address by which this host reaches the
  // coordinator.
  std::string advertised_host;
  // Ranks with different names share no memory. Empty: this machine and its network namespace.
  std::string host_identity;
  // The same on all ranks.
  Placement placement = Placement::kHost;
  absl::Duration timeout = absl::Seconds(30);
  // How long ranks of one host wait for each other before they go on by sockets.
  absl::Duration host_window = absl::Seconds(5);
  // Ends waits at the coordinator early, with its reason. May be null.
  std::shared_ptr<client::Cancellation> cancellation;
  // Told how many file descriptors the rank has open for the group at most: before it opens any,
  // and again, which is no more, once it is known which ranks share memory. An error ends the
  // meeting. May be null.
  std::function<absl::Status(int world_size, int descriptors)> take_descriptors;
};

struct MetRanks {
  Connections connections;
  // To ranks of this host: one closes when the process at its other end does.
  std::vector<HostLink> links;
  // Why ranks that might share memory do not, as any of them says it; each text once.
  std::vector<std::string> why_not_of_all;
};

// All ranks of `group`'s generation call it; blocks for at most the timeout. Two rounds through the
// coordinator: how each can be reached; then, once those of a host have met, who shares memory with
// whom; and a third where there are both. Errors: those of ProcessGroup::AllGather (naming who is
// missing); FAILED_PRECONDITION (ranks of another version); INVALID_ARGUMENT, on all
// ranks alike (not one placement); UNAVAILABLE, DEADLINE_EXCEEDED,
// RESOURCE_EXHAUSTED name the rank that could not be connected.
absl::StatusOr<MetRanks> MeetRanks(client::ProcessGroup& group,
                                   const std::string& coordinator_address,
                                   const BootstrapOptions& options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_GROUP_BOOTSTRAP_H_
