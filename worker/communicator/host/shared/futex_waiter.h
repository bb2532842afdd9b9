// How a rank waits for a change that another rank makes in shared memory: it looks, then sleeps.
// Poison wakes all ranks when the communicator ends.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_SHARED_FUTEX_WAITER_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_SHARED_FUTEX_WAITER_H_

#include <atomic>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/cpu_pause.h"
#include "base/rank_set.h"
#include "base/threads/mutex.h"
#include "worker/communicator/host/shared/host_shared_memory.h"
#include "worker/communicator/wait_log.h"

namespace cohort::worker {

// A full fence: a store before it and a load after it are not reordered. GCC's ThreadSanitizer does
// not know fences; there, an atomic operation that is a fence on the machine replaces it.
inline void FullFence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> nothing{0};
  nothing.fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Fetches the cache line for a later store, while there is something else to do.
inline void PrefetchToWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// One rank's waiter. Await and Glance are called by one thread at a time, the other methods by any.
class FutexWaiter {
 public:
  // `space` outlives the waiter. `gives_way`: the rank does not spin before it yields the
  // processor, as where ranks outnumber processors. `log` (may be null) gets the ranks for which it
  // sleeps.
  FutexWaiter(const HostSharedMemory& space, int rank, bool gives_way = false,
              WaitLog* log = nullptr);

  // Waits until `done`. The rank that makes it true calls SomebodySleeps afterwards. Before each
  // sleep that is logged, and once a rank has left, `absent` returns the ranks that have to come, as
  // errors name them. Errors: ABORTED (the cause of the poison; or one of those ranks has left, and
  // IsLeftError), DEADLINE_EXCEEDED (without a text).
  absl::Status Await(absl::FunctionRef<bool()> done, Instant deadline,
                     absl::FunctionRef<RankSet()> absent) const;
  // Looks at `done` a few times, without the cost of Await. Returns false if it is not true yet.
  // Looks once if the awaited rank cannot run meanwhile.
  template <typename Done>
  bool Glance(const Done& done) const {
    if (done()) return true;
    if (gives_way_ || shared_waits_ > 0) return false;
    for (int look = 1; look < kGlances; ++look) {
      CpuPause();  // every look takes the cache line away from the rank that writes it
      if (done()) return true;
    }
    return false;
  }

  // Called after a store. A rank that is awake sees the store; a rank that sleeps has to be woken.
  bool SomebodySleeps() const {
    // Either this rank sees the sleeper, or the sleeper sees the store.
    FullFence();
    return space_.sleepers().load(std::memory_order_relaxed) != 0;
  }
  void WakeNow(int rank) const;
  void WakeAllNow() const;

  // Ends all present and later waits. The first cause stays.
  void SetPoison(absl::string_view cause) const;
  bool poisoned() const {
    return space_.poison().state.load(std::memory_order_acquire) != Poison::kNone;
  }
  // ABORTED with the cause. The space is poisoned.
  absl::Status CauseOfPoison() const;

  // Records that a rank has left in order. It is `rank` of the space, and `name` in errors.
  void SetLeft(int rank, int name, absl::string_view cause);
  bool has_left() const { return left_count_.load(std::memory_order_acquire) > 0; }
  // The ranks of the space that have left.
  RankSet Left() const;
  // ABORTED (IsLeftError) with the cause. The rank of the space has left.
  absl::Status CauseOfLeaving(int rank) const;
  // The same if one of `ranks`, as errors name them, has left; else OK.
  absl::Status CheckLeft(const RankSet& ranks) const;

 private:
  static constexpr int kGlances = 30;

  // Stores on which processor this rank runs. True if another rank that is awake was last seen
  // there: then it cannot run while this one looks.
  bool SharesProcessor() const;
  // Does not sleep if there are more leavers than `left` by now.
  void Sleep(absl::FunctionRef<bool()> done, Instant deadline, int left) const;

  const HostSharedMemory& space_;
  const int rank_;
  // Where ranks outnumber processors, a rank that spins keeps the awaited rank from running.
  const bool gives_way_;
  // Waits in a row that found another rank on this rank's processor.
  mutable int shared_waits_ = 0;
  WaitLog* const log_;

  struct Leaver {
    int rank = 0;
    int name = 0;
    std::string cause;
  };
  std::atomic<int> left_count_{0};
  mutable Mutex mutex_;
  std::vector<Leaver> left_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_SHARED_FUTEX_WAITER_H_
