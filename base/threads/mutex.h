// The standard library's lock and condition variable, with Abseil's interface and thread-safety
// annotations.
//
// It does not use absl::Mutex, which Debian builds with deadlock detection: every lock of a process
// then goes through one graph under one spin lock. That was a quarter of a client's work for a
// small send. In tests, ThreadSanitizer looks for deadlocks of these locks.
#ifndef COHORT_BASE_THREADS_MUTEX_H_
#define COHORT_BASE_THREADS_MUTEX_H_

#include <algorithm>
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
  // The standard library's type of deadlines does not hold longer ones. A longer wait begins again:
  // waits without a deadline would need the libstdc++ of GCC 12, and RHEL 9 has that of GCC 11.
  static constexpr absl::Duration kLongest = absl::Hours(24 * 365);

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
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    mutex->NotifyAwaiting();
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    const bool timed_out =
        changed_.wait_for(lock, absl::ToChronoNanoseconds(std::min(timeout, Mutex::kLongest))) ==
        std::cv_status::timeout;
    lock.release();
    return timed_out && timeout <= Mutex::kLongest;
  }
  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

inline bool Mutex::AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout) {
  if (condition.Eval()) return true;
  NotifyAwaiting();  // this thread may have changed their conditions
  std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
  const auto is_true = [&condition] { return condition.Eval(); };
  const auto longest = absl::ToChronoNanoseconds(std::min(timeout, kLongest));
  ++awaiting_;
  bool result = let_go_.wait_for(lock, longest, is_true);
  while (!result && timeout > kLongest) result = let_go_.wait_for(lock, longest, is_true);
  --awaiting_;
  lock.release();
  return result;
}

}  // namespace cohort

#endif  // COHORT_BASE_THREADS_MUTEX_H_
