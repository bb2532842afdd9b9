// Whether the process at the other end of a local socket has ended.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_PEER_PROCESS_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_PEER_PROCESS_H_

#include "base/shm/local_socket.h"
#include "base/unique_fd.h"

namespace cohort::parallel {

// A forked child of that process may keep the connection open after the process ended. If the
// kernel does not identify the process (another PID namespace, no descriptors), the connection
// alone counts.
class PeerProcess {
 public:
  explicit PeerProcess(const shm::LocalSocket& socket);

  // Readable once the process has ended; negative if the process is unknown.
  int fd() const { return process_.get(); }
  // Never waits.
  bool HasEnded() const;

 private:
  bool ended_before_ = false;
  UniqueFd process_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_PEER_PROCESS_H_
