// The process at the other end of a local socket: whether it has ended.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_PEER_PROCESS_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_PEER_PROCESS_H_

#include "base/shm/local_socket.h"
#include "base/unique_fd.h"

namespace cohort::parallel {

// A child that it forked keeps its connection open, but not its process. Where the kernel does not
// say who it is (another namespace of processes, no descriptors), the connection alone counts.
class PeerProcess {
 public:
  explicit PeerProcess(const shm::LocalSocket& socket);

  // Readable once it has ended; negative where that is not known.
  int fd() const { return process_.get(); }
  // Never waits.
  bool HasEnded() const;

 private:
  bool ended_before_ = false;
  UniqueFd process_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_PEER_PROCESS_H_
