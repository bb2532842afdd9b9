// Ends a group's collectives when a process dies that shares memory with this one.
#ifndef COHORT_WORKER_GROUP_MEMBERSHIP_PEER_PROCESS_WATCH_H_
#define COHORT_WORKER_GROUP_MEMBERSHIP_PEER_PROCESS_WATCH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "worker/group/bootstrap/host_bootstrap.h"
#include "worker/group/membership/watch_thread.h"

namespace cohort::worker {

// Notices the death within a millisecond, by two signs. The kernel closes a process's connections
// however it ends; but a child that it forked may keep them open. A descriptor of the process
// (pidfd) reports its end even then.
class PeerProcessWatch {
 public:
  // `on_gone` gets the rank and a text such as "rank 3 is gone: its process 4711 ended", at most once
  // for each link. `left`: the rank left in order. It runs on the watch thread.
  using OnGone = std::function<void(int rank, bool left, const std::string& cause)>;
  PeerProcessWatch(std::shared_ptr<WatchThread> watch_thread, std::vector<HostLink> links,
                   OnGone on_gone);
  // Tells the other ranks that this rank leaves: they do not take it for dead.
  ~PeerProcessWatch();

  // Tells the other ranks, now, that this rank leaves because of `why`.
  void SayGoodbye(const std::string& why);

 private:
  struct Watched {
    HostLink link;
    UniqueFd process;  // not open if this process does not know the other's number
    pid_t pid = 0;
    bool gone = false;
    WatchThread::Watched socket_watch = 0;
    WatchThread::Watched process_watch = 0;
  };

  bool OnReadable(Watched& watched, bool process_ended);

  const std::shared_ptr<WatchThread> watch_thread_;
  const OnGone on_gone_;
  std::vector<std::unique_ptr<Watched>> watched_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_MEMBERSHIP_PEER_PROCESS_WATCH_H_
