// Sleeping until a socket can do something.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_POLL_UNTIL_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_POLL_UNTIL_H_

#include <poll.h>

#include <vector>

#include "base/clock.h"

namespace cohort::worker {

// Whether one of `polled` has something before the deadline; `revents` says which.
bool PollUntil(std::vector<pollfd>& polled, Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_POLL_UNTIL_H_
