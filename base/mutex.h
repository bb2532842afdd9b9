// absl::Mutex, told to ThreadSanitizer.
//
// Debian's Abseil is not instrumented, so ThreadSanitizer sees no order through it and reports
// races that are none. Under that sanitizer this lock brackets the same calls with its annotations;
// otherwise the names below are aliases and cost nothing. Thread-safety annotations
// (ABSL_GUARDED_BY and its kin) work with both.
#ifndef COHORT_BASE_MUTEX_H_
#define COHORT_BASE_MUTEX_H_

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#if defined(__SANITIZE_THREAD__)
#define COHORT_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define COHORT_THREAD_SANITIZER 1
#endif
#endif

#ifdef COHORT_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace cohort {

#ifdef COHORT_THREAD_SANITIZER

class ABSL_LOCKABLE Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void Lock() ABSL_EXCLUSIVE_LOCK_FUNCTION() {
    __tsan_mutex_pre_lock(this, 0);
    mutex_.Lock();
    __tsan_mutex_post_lock(this, 0, 0);
  }
  void Unlock() ABSL_UNLOCK_FUNCTION() {
    __tsan_mutex_pre_unlock(this, 0);
    mutex_.Unlock();
    __tsan_mutex_post_unlock(this, 0);
  }
  void AssertHeld() const ABSL_ASSERT_EXCLUSIVE_LOCK() { mutex_.AssertHeld(); }
  // Conditions are evaluated with the lock held, by whichever thread releases it.
  void Await(const absl::Condition& condition) {
    BeforeWait();
    mutex_.Await(condition);
    AfterWait();
  }
  bool AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout) {
    BeforeWait();
    const bool result = mutex_.AwaitWithTimeout(condition, timeout);
    AfterWait();
    return result;
  }

 private:
  friend class CondVar;
  void BeforeWait() {
    __tsan_mutex_pre_unlock(this, 0);
    __tsan_mutex_post_unlock(this, 0);
  }
  void AfterWait() {
    __tsan_mutex_pre_lock(this, 0);
    __tsan_mutex_post_lock(this, 0, 0);
  }

  absl::Mutex mutex_{absl::kConstInit};
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

class CondVar {
 public:
  void Wait(Mutex* mutex) {
    mutex->BeforeWait();
    cond_var_.Wait(&mutex->mutex_);
    mutex->AfterWait();
  }
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) {
    mutex->BeforeWait();
    const bool timed_out = cond_var_.WaitWithTimeout(&mutex->mutex_, timeout);
    mutex->AfterWait();
    return timed_out;
  }
  void Signal() { cond_var_.Signal(); }
  void SignalAll() { cond_var_.SignalAll(); }

 private:
  absl::CondVar cond_var_;
};

#else

using Mutex = absl::Mutex;
using MutexLock = absl::MutexLock;
using CondVar = absl::CondVar;

#endif

}  // namespace cohort

#endif  // COHORT_BASE_MUTEX_H_
