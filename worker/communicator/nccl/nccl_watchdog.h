// The thread of a process that watches the work that its groups have in flight on devices.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_WATCHDOG_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_WATCHDOG_H_

#include <cstdint>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "base/mutex.h"

namespace cohort::worker {

// The thread runs while there are wards, and sleeps while nothing of theirs is in flight.
// Thread-safe.
class NcclWatchdog {
 public:
  class Ward {
   public:
    virtual ~Ward() = default;
    // Whether something is still in flight. Called on the watchdog's thread; must not wait, since
    // other wards are looked at after it.
    virtual bool Look() = 0;
  };

  static NcclWatchdog& OfProcess();

  NcclWatchdog() = default;
  ~NcclWatchdog();

  // Makes `ward` a ward until Forget; one that is already stays one. Errors: RESOURCE_EXHAUSTED
  // (the thread could not start; names the limits). Then it is no ward, and may try again.
  absl::Status Enlist(Ward* ward);
  // From now on `ward`, which was enlisted, has something in flight: the thread looks at it soon,
  // and every few milliseconds while Look says so.
  void Watch(Ward* ward);
  // Waits for the look that is in `ward`; no look begins after it. Not from Look.
  void Forget(Ward* ward);
  bool runs() const;

 private:
  void Run(int64_t run);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<Ward*, bool> wards_ ABSL_GUARDED_BY(mutex_);  // whether they are in flight
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;            // how many of them
  Ward* looks_at_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // A thread ends when its number is no longer the current one.
  int64_t run_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_WATCHDOG_H_
