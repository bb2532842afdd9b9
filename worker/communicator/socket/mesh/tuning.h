// The socket options of connections between ranks.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_TUNING_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_TUNING_H_

#include "absl/time/time.h"

namespace cohort::worker {

// Sets the options of a connected socket. Stream 0 carries frames, the others large data.
void TuneConnection(int fd, int stream, absl::Duration link_timeout);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_TUNING_H_
