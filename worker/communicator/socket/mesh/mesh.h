// Connections between all ranks of a group.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_MESH_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_MESH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/id128.h"
#include "worker/communicator/socket/mesh/rank_listener.h"
#include "worker/communicator/socket/mesh/rank_socket.h"

namespace cohort::worker {

struct MeshOptions {
  int rank = 0;
  std::vector<std::string> addresses;  // of the listeners, by rank
  Id128 secret;                        // of this group and generation
  int streams = 1;                     // connections between two ranks; the same on all
  // A link on which no data is acknowledged for this long is cut.
  absl::Duration link_timeout = absl::Seconds(15);
  std::vector<int> names;  // by rank, for errors; empty: as they are
  // Readable once this rank need not wait any longer, because another rank has failed. -1: none.
  int interrupt_fd = -1;
};

struct Mesh {
  // By rank and stream, non-blocking; none for this rank itself. Stream 0 has the link's time-out.
  std::vector<std::vector<RankSocket>> streams;
};

// Connects this rank with all others: it connects to the ranks below it and accepts those above it,
// on one thread. If the name of a rank's host has several addresses, it tries the next one after
// 250 ms, or once the one before is refused, and keeps the first that answers (RFC 8305).
// Unidentified connections are rejected and do no harm. Errors: UNAVAILABLE (names a rank that
// cannot be reached, and its address), DEADLINE_EXCEEDED (names the ranks that did not come),
// RESOURCE_EXHAUSTED (file descriptors), CANCELLED (interrupt_fd).
absl::StatusOr<Mesh> ConnectMesh(const Listener& listener, const MeshOptions& options,
                                 Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_MESH_H_
