// The standard library's lock and condition variable, with Abseil's interface and thread-safety
// annotations.
//
// Not absl::Mutex: Debian builds it to look for deadlocks, so that every lock of a process, of
// whichever library, goes through one graph under one spin lock. It was a quarter of a client's
// work for a small send. ThreadSanitizer, which understands these, looks for deadlocks in tests.
#ifndef COHORT_BASE_MUTEX_H_
#define COHORT_BASE_MUTEX_H_

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
    TellAwaiting();
    mutex_.unlock();
  }

  // Until `condition` is true, which only who holds the lock may change. It is looked at whenever
  // the lock was let go; for waits that are rare and short lived.
  void Await(const absl::Condition& condition) ABSL_EXCLUSIVE_LOCKS_REQUIRED(this) {
    AwaitWithTimeout(condition, absl::InfiniteDuration());
  }
  // Whether it is true in the end. Never waits when `timeout` is not positive.
  bool AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(this);

 private:
  friend class CondVar;
  // Longer than this, the type of the standard's deadlines does not hold them.
  static constexpr absl::Duration kNoEnd = absl::Hours(24 * 365);

  void TellAwaiting() {
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

// May wake without cause: wait in a loop.
class CondVar {
 public:
  void Wait(Mutex* mutex) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    WaitWithTimeout(mutex, absl::InfiniteDuration());
  }
  // Whether the time has passed.
  bool WaitWithTimeout(Mutex* mutex, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    mutex->TellAwaiting();
    std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
    bool timed_out = false;
    if (timeout >= Mutex::kNoEnd) {
      changed_.wait(lock);
    } else {
      timed_out =
          changed_.wait_for(lock, absl::ToChronoNanoseconds(timeout)) == std::cv_status::timeout;
    }
    lock.release();
    return timed_out;
  }
  void Signal() { changed_.notify_one(); }
  void SignalAll() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

inline bool Mutex::AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout) {
  if (condition.Eval()) return true;
  TellAwaiting();  // of what this thread has changed
  std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
  const auto is_true = [&condition] { return condition.Eval(); };
  bool result = true;
  ++awaiting_;
  if (timeout >= kNoEnd) {
    let_go_.wait(lock, is_true);
  } else {
    result = let_go_.wait_for(lock, absl::ToChronoNanoseconds(timeout), is_true);
  }
  --awaiting_;
  lock.release();
  return result;
}

}  // namespace cohort

#endif  // COHORT_BASE_MUTEX_H_
