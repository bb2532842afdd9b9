// Ends a group's collectives when a process it shares memory with is gone.
#ifndef COHORT_WORKER_GROUP_HOST_WATCH_H_
#define COHORT_WORKER_GROUP_HOST_WATCH_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "worker/group/host_formation.h"
#include "worker/group/supervisor.h"

namespace cohort::worker {

// The kernel closes a process's connections however it ends, and tells of its end by a descriptor
// of the process, which no child that it forked keeps open. Both are watched: within a millisecond.
class HostWatch {
 public:
  // `on_gone` gets such as "rank 3 is gone: process 4711 ended", once for each link at most, on the
  // supervisor's thread.
  HostWatch(std::shared_ptr<Supervisor> supervisor, std::vector<HostLink> links,
            std::function<void(const std::string&)> on_gone);
  // The others are told that this rank leaves, not that it died.
  ~HostWatch();

  // Tells them now that this rank leaves because of `why`.
  void SayGoodbye(const std::string& why);

 private:
  struct Watched {
    HostLink link;
    UniqueFd process;  // none where the other's number is not known here
    pid_t pid = 0;
    bool gone = false;
    Supervisor::Watched socket_watch = 0;
    Supervisor::Watched process_watch = 0;
  };

  bool OnReadable(Watched& watched, bool process_ended);

  const std::shared_ptr<Supervisor> supervisor_;
  const std::function<void(const std::string&)> on_gone_;
  std::vector<std::unique_ptr<Watched>> watched_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_HOST_WATCH_H_
