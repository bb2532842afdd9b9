// What the system is asked to do with the connections between ranks.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TUNING_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TUNING_H_

#include "absl/time/time.h"

namespace cohort::worker {

// `stream`: stream 0 carries frames, the others large data. Of a connected socket.
void TuneConnection(int fd, int stream, absl::Duration link_timeout);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TUNING_H_
