// One thread that runs tasks: now, in order, or after a while.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_TIMER_QUEUE_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_TIMER_QUEUE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace cohort::client {

// Thread-safe. Tasks run one at a time, those of one moment in the order they came. They must not
// block.
class TimerQueue {
 public:
  using Task = std::function<void()>;

  // Starts its thread; without one no task runs, and status() says why.
  TimerQueue();
  // Drops the tasks that have not run, and waits for the task that runs, unless that task itself
  // destroys this object.
  ~TimerQueue();
  TimerQueue(const TimerQueue&) = delete;
  TimerQueue& operator=(const TimerQueue&) = delete;

  // Errors: RESOURCE_EXHAUSTED (threads).
  const absl::Status& status() const { return status_; }

  void Post(Task task) { After(absl::ZeroDuration(), std::move(task)); }
  // Returns an id for Cancel; never 0.
  uint64_t After(absl::Duration delay, Task task);
  // Whether the task was still to run; then it will not.
  bool Cancel(uint64_t id);
  bool OnThread() const;

 private:
  // Outlives the queue while a task that destroys the queue returns.
  struct State;
  static void Run(const std::shared_ptr<State>& state);

  const std::shared_ptr<State> state_;
  absl::Status status_;
  std::thread thread_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_TIMER_QUEUE_H_
