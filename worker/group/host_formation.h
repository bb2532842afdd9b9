// How ranks of one host come to share memory: they meet at the socket of the first of them, who
// hands all of it to all.
#ifndef COHORT_WORKER_GROUP_HOST_FORMATION_H_
#define COHORT_WORKER_GROUP_HOST_FORMATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/id128.h"
#include "base/shm/local_socket.h"
#include "base/shm/segment.h"
#include "worker/communicator/host/host_communicator.h"

namespace cohort::worker {

// A rank that may be able to share memory.
struct HostCandidate {
  int rank = 0;
  std::string local_socket;
  uint64_t heap_bytes = 0;
};

struct HostFormationOptions {
  int rank = 0;
  std::vector<HostCandidate> candidates;  // by rank, this one included
  Id128 secret;                           // of the group
  const shm::LocalListener* listener = nullptr;
  // This rank's.
  std::shared_ptr<const shm::Segment> heap;
  // Of memory besides, which all map where all candidates are in it; 0: none. The same on all.
  size_t common_bytes = 0;
  // How long the first waits for candidates: those who do not come by then cannot.
  absl::Duration window = absl::Seconds(5);
};

// The connection to a rank of this host; it closes when either process is gone.
struct HostLink {
  int rank = 0;
  shm::LocalSocket socket;
};

struct HostFormation {
  std::vector<int> ranks;  // that share memory, this one included, in order
  // Of these, by their order in `ranks`. None of a rank alone.
  std::unique_ptr<HostMemory> memory;
  // Of `common_bytes`, zeros until a rank changes them; of no bytes if there is none.
  shm::Segment common;
  // From the first to each, from each to the first.
  std::vector<HostLink> links;
  std::string why_not;  // why not all candidates are in it
};

// All candidates call it. A rank whom the first does not hear of, or does not let in (another
// user's process), is alone: that is no error. Errors, each naming a rank: UNAVAILABLE (one was
// gone in the middle of it), RESOURCE_EXHAUSTED (memory), DEADLINE_EXCEEDED.
absl::StatusOr<HostFormation> FormHost(const HostFormationOptions& options, Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_HOST_FORMATION_H_
