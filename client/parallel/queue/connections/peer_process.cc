#include "client/parallel/queue/connections/peer_process.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cohort::parallel {

PeerProcess::PeerProcess(const shm::LocalSocket& socket) {
  const pid_t pid = socket.peer().pid;
  if (pid <= 0) return;
  process_ = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  ended_before_ = !process_.is_open() && errno == ESRCH;
}

bool PeerProcess::HasEnded() const {
  if (!process_.is_open()) return ended_before_;
  pollfd entry = {process_.get(), POLLIN, 0};
  return poll(&entry, 1, 0) > 0;
}

}  // namespace cohort::parallel
