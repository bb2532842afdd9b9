// An event that happens once. Waits use the steady clock: absl::Notification waits by the calendar
// clock, which an operator may set back by hours.
#ifndef COHORT_BASE_THREADS_NOTIFICATION_H_
#define COHORT_BASE_THREADS_NOTIFICATION_H_

#include "absl/time/time.h"
#include "base/threads/mutex.h"

namespace cohort {

// Thread-safe.
class Notification {
 public:
  // Call it once.
  void Notify() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    notified_ = true;
  }
  // Blocks until Notify or the end of `timeout`. Returns whether Notify was called.
  bool WaitWithTimeout(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&notified_), timeout);
  }

 private:
  Mutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_NOTIFICATION_H_
