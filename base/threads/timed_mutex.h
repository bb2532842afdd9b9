// A lock that calls hold while they wait for other processes, so that a thread may give up waiting.
#ifndef COHORT_BASE_THREADS_TIMED_MUTEX_H_
#define COHORT_BASE_THREADS_TIMED_MUTEX_H_

#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort {

// A waiting thread runs its WaitHook.
class ABSL_LOCKABLE TimedMutex {
 public:
  TimedMutex() = default;
  TimedMutex(const TimedMutex&) = delete;
  TimedMutex& operator=(const TimedMutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    if (!mutex_.try_lock()) AwaitFor(absl::InfiniteDuration());
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() { mutex_.unlock(); }
  // Returns whether this thread has got the lock. Reads no clock if it gets the lock at once.
  bool LockFor(absl::Duration timeout) ABSL_EXCLUSIVE_TRYLOCK_FUNCTION(true) {
    return mutex_.try_lock() || AwaitFor(timeout);
  }

 private:
  bool AwaitFor(absl::Duration timeout);

  std::timed_mutex mutex_;
};

class ABSL_SCOPED_LOCKABLE TimedMutexLock {
 public:
  explicit TimedMutexLock(TimedMutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  // Takes over a lock that the thread has.
  TimedMutexLock(TimedMutex* mutex, std::adopt_lock_t /*locked*/)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex)
      : mutex_(mutex) {}
  ~TimedMutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  TimedMutexLock(const TimedMutexLock&) = delete;
  TimedMutexLock& operator=(const TimedMutexLock&) = delete;

 private:
  TimedMutex* const mutex_;
};

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_TIMED_MUTEX_H_
