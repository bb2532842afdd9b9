// The one thread of a process on which its queues get the events of their other ends.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_CONNECTION_LOOP_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_CONNECTION_LOOP_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"

namespace cohort::parallel {

// Thread-safe.
class ConnectionLoop {
 public:
  // Runs as long as a caller holds it. No caller may drop it on its own thread.
  static std::shared_ptr<ConnectionLoop> Shared();

  ConnectionLoop();
  EventLoop& events() { return events_; }
  // Runs `task` on the loop's thread, at most a tenth of a second later.
  void RunLater(std::function<void()> task) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  void RunTasks() ABSL_LOCKS_EXCLUDED(mutex_);

  Mutex mutex_;
  std::vector<std::function<void()>> tasks_ ABSL_GUARDED_BY(mutex_);
  EventLoop events_;  // last: its thread uses the rest
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_CONNECTIONS_CONNECTION_LOOP_H_
