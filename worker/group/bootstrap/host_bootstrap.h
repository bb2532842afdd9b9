// Shares memory between the ranks of one host: they connect to the socket of the first rank, which
// hands out all descriptors.
#ifndef COHORT_WORKER_GROUP_BOOTSTRAP_HOST_BOOTSTRAP_H_
#define COHORT_WORKER_GROUP_BOOTSTRAP_HOST_BOOTSTRAP_H_

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
  std::string local_socket;  // as LocalSocket::Connect takes it
  uint64_t heap_bytes = 0;
};

struct HostBootstrapOptions {
  int rank = 0;
  std::vector<HostCandidate> candidates;  // by rank, including this one
  Id128 secret;                           // of the group
  const shm::LocalListener* listener = nullptr;
  // This rank's heap.
  std::shared_ptr<const shm::Segment> heap;
  // The size of a further segment, which all ranks map if every candidate takes part; 0: none. The
  // same on all ranks.
  size_t common_bytes = 0;
  // How long the first rank waits for the candidates. A candidate that comes later shares no
  // memory.
  absl::Duration window = absl::Seconds(5);
};

// The connection to a rank of this host; it closes when either process is gone.
struct HostLink {
  int rank = 0;
  shm::LocalSocket socket;
};

struct HostMembers {
  std::vector<int> ranks;  // that share memory, including this one, in order
  // The memory of these ranks, in the order of `ranks`. Null if this rank is alone.
  std::unique_ptr<HostMemory> memory;
  // The further segment of `common_bytes`, zeros until a rank writes to it; of no bytes if there is
  // none.
  shm::Segment common;
  // The first rank has a link to each other rank, every other rank has one to the first.
  std::vector<HostLink> links;
  std::string why_not;  // why some candidates do not take part
};

// All candidates call it. A rank is alone, without an error, if the first rank gets no hello from
// it, or refuses it (another user's process). Errors, each naming a rank: UNAVAILABLE (a rank died
// meanwhile), RESOURCE_EXHAUSTED (memory), DEADLINE_EXCEEDED.
absl::StatusOr<HostMembers> BootstrapHost(const HostBootstrapOptions& options, Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_BOOTSTRAP_HOST_BOOTSTRAP_H_
