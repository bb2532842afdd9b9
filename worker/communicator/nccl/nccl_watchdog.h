// The thread of a process that looks after what its groups have in flight on devices.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_WATCHDOG_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_WATCHDOG_H_

#include <cstdint>
#include <map>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"

namespace cohort::worker {

// There is a thread while somebody is watched, and it sleeps while nothing of theirs is in flight.
// Thread-safe.
class NcclWatchdog {
 public:
  class Ward {
   public:
    virtual ~Ward() = default;
    // Whether something is still in flight. On the watchdog's thread; waits for nothing, since
    // others are looked at behind it.
    virtual bool Look() = 0;
  };

  static NcclWatchdog& OfProcess();

  NcclWatchdog() = default;
  ~NcclWatchdog();

  // From now on `ward` has something in flight: it is looked at soon, and every few milliseconds
  // while it says so.
  void Watch(Ward* ward);
  // When this returns, nobody looks at it. Not from Look.
  void Forget(Ward* ward);
  bool runs() const;

 private:
  void Run(int64_t run);

  mutable Mutex mutex_;
  CondVar changed_;
  std::map<Ward*, bool> wards_ ABSL_GUARDED_BY(mutex_);  // whether they are in flight
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;            // how many of them
  Ward* looks_at_ ABSL_GUARDED_BY(mutex_) = nullptr;
  // A thread ends when its number is no more that of now.
  int64_t run_ ABSL_GUARDED_BY(mutex_) = 0;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_WATCHDOG_H_
