// The standard library's lock and condition variable, with Abseil's interface and thread-safety
// annotations.
//
// It does not use absl::Mutex, which Debian builds with deadlock detection: every lock of a process
// then goes through one graph under one spin lock. That was a quarter of a client's work for a
// small send. In tests, ThreadSanitizer looks for deadlocks of these locks.
//
// A wait for a condition runs the thread's WaitHook, without the lock.
#ifndef COHORT_BASE_THREADS_MUTEX_H_
#define COHORT_BASE_THREADS_MUTEX_H_

#include <condition_variable>
#include <mutex>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

namespace cohort {

class CondVar;

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() { mutex_.lock(); }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    NotifyAwaiting();
    mutex_.unlock();
  }

  // Waits until `condition` is true. Only a thread that holds the lock may change it. The waiting
  // thread checks it after each unlock, so Await is for rare and short waits.
  void Await(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    AwaitWithTimeout(condition, absl::InfiniteDuration());
  }
  // Returns whether the condition is true at the end. Does not wait if `timeout` is not positive.
  bool AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this);

 private:
  friend class CondVar;
  void NotifyAwaiting() {
    if (awaiting_ > 0) let_go_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable let_go_;
  int awaiting_ = 0;
};

class ABSL_SCOPED_LOCKABLE MutexLock {
 public:
  explicit MutexLock(Mutex* mutex) ABSL_EXCLUSIVE_LOCK_FUNCTION(mutex) : mutex_(mutex) {
    mutex_->Lock();
  }
  ~MutexLock() ABSL_UNLOCK_FUNCTION() { mutex_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mutex_;
};

// A wait may end without a signal: wait in a loop.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    WaitWithTimeout(mutex, absl::InfiniteDuration());
  }
  // Returns whether the timeout has passed.
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex);
  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_MUTEX_H_
