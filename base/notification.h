// One event that others wait for, by the steady clock: absl::Notification waits by the calendar,
// which may be set back by hours.
#ifndef COHORT_BASE_NOTIFICATION_H_
#define COHORT_BASE_NOTIFICATION_H_

#include "absl/time/time.h"
#include "base/mutex.h"

namespace cohort {

// Thread-safe.
class Notification {
 public:
  // Once.
  void Notify() ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    notified_ = true;
  }
  // Whether it was notified in time.
  bool WaitWithTimeout(absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&notified_), timeout);
  }

 private:
  Mutex mutex_;
  bool notified_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort

#endif  // COHORT_BASE_NOTIFICATION_H_
