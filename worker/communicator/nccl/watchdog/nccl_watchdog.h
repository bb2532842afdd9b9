// The thread of a process that watches the work that its groups have in flight on devices.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_WATCHDOG_NCCL_WATCHDOG_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_WATCHDOG_NCCL_WATCHDOG_H_

#include <cstdint>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/threads/mutex.h"

namespace cohort::worker {

// The thread runs while communicators are enlisted, and sleeps while no operation is in flight.
// Thread-safe.
class NcclWatchdog {
 public:
  class Watched {
   public:
    virtual ~Watched() = default;
    // Whether something is still in flight. Called on the watchdog's thread; must not wait, since
    // other communicators are looked at after it.
    virtual bool Look() = 0;
  };

  static NcclWatchdog& OfProcess();

  NcclWatchdog() = default;
  ~NcclWatchdog();

  // Watches `communicator` until Forget; does nothing if it is watched already. Errors:
  // RESOURCE_EXHAUSTED (the thread could not start; names the limits). Then it is not watched, and
  // the caller may try again.
  absl::Status Enlist(Watched* communicator);
  // From now on `communicator`, which was enlisted, has something in flight: the thread looks at it
  // soon, and every few milliseconds while Look says so.
  void Watch(Watched* communicator);
  // Waits for the look that is in `communicator`; no look begins after it. Not from Look.
  void Forget(Watched* communicator);
  bool runs() const;

 private:
  void Run(int64_t run);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<Watched*, bool> watched_ ABSL_GUARDED_BY(mutex_);  // whether they are in flight
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;            // how many of them
  Watched* looks_at_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // A thread ends when its number is no longer the current one.
  int64_t run_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_WATCHDOG_NCCL_WATCHDOG_H_
