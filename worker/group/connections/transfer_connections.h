// Sends a rank's memory and sockets from the daemon that connected to the other ranks to the client
// whose threads use them.
#ifndef COHORT_WORKER_GROUP_CONNECTIONS_TRANSFER_CONNECTIONS_H_
#define COHORT_WORKER_GROUP_CONNECTIONS_TRANSFER_CONNECTIONS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "base/shm/segment.h"
#include "worker/group/connections/connections.h"

namespace cohort::worker {

// The version of the messages and of the layout of the memory: another layout is another version.
inline constexpr uint32_t kConnectionsVersion = 5;

// Sends all connections as descriptors; the receiver alone has them once the sender destroys its
// own. Errors: UNAVAILABLE (the client is gone), DEADLINE_EXCEEDED.
absl::Status SendConnections(const Connections& connections, const shm::LocalSocket& socket,
                             Instant deadline);

// `heap` is this rank's, which the client has mapped already. Errors: UNAVAILABLE (the daemon is
// gone), DEADLINE_EXCEEDED, FAILED_PRECONDITION (a daemon of another version), INVALID_ARGUMENT
// (inconsistent messages), RESOURCE_EXHAUSTED (memory, descriptors).
absl::StatusOr<Connections> ReceiveConnections(const shm::LocalSocket& socket,
                                               std::shared_ptr<const shm::Segment> heap,
                                               Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_CONNECTIONS_TRANSFER_CONNECTIONS_H_
