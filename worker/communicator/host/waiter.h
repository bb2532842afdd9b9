// How a rank waits for what another does in shared memory: it looks, then sleeps; and how all are
// woken when there is nothing left to wait for.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_WAITER_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_WAITER_H_

#include <atomic>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/rank_set.h"
#include "worker/communicator/host/host_space.h"
#include "worker/communicator/wait_log.h"

namespace cohort::worker {

// Between a store and a later load: neither passes. GCC's ThreadSanitizer knows no fences; there,
// what is one on the machine.
inline void FullFence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<int> nothing{0};
  nothing.fetch_add(0, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

// Takes the line of memory for a store to come, while there is something else to do.
inline void PrefetchToWrite(const void* line) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(*static_cast<const char*>(line)));
#else
  __builtin_prefetch(line, 1);
#endif
}

// Between two looks: kinder to the one who writes, whose line every look takes away.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// One rank's. Await by one thread at a time; the rest from any.
class Waiter {
 public:
  // `space` outlives it.
  // `gives_way`: never looks for long before it offers the processor, as where ranks outnumber
  // processors. `log` (may be null) learns for whom it sleeps.
  Waiter(const HostSpace& space, int rank, bool gives_way = false, WaitLog* log = nullptr);

  // Until `done`. Whoever makes it true asks SomebodySleeps behind that. `absent` is asked before
  // it sleeps: who has to come, as ranks are called in errors. Errors: ABORTED, who poisoned the
  // space and why; DEADLINE_EXCEEDED, without a word.
  absl::Status Await(absl::FunctionRef<bool()> done, Instant deadline,
                     absl::FunctionRef<RankSet()> absent) const;
  // Looks at `done` a few times, without the cost of Await. Returns false if it is not true yet.
  // Looks once if the awaited rank cannot run meanwhile.
  template <typename Done>
  bool Glance(const Done& done) const {
    if (done()) return true;
    if (gives_way_ || shared_waits_ > 0) return false;
    for (int look = 1; look < kGlances; ++look) {
      Pause();
      if (done()) return true;
    }
    return false;
  }

  // What was stored before is seen by who does not sleep; who does has to be woken.
  bool SomebodySleeps() const {
    // Either this sees the sleeper, or the sleeper sees what was stored.
    FullFence();
    return space_.sleepers().load(std::memory_order_relaxed) != 0;
  }
  void WakeNow(int rank) const;
  void WakeAllNow() const;

  // Ends all that wait and will wait. The first cause stays.
  void SetPoison(absl::string_view cause) const;
  bool poisoned() const {
    return space_.poison().state.load(std::memory_order_acquire) != Poison::kNone;
  }
  // ABORTED, and why. Of a poisoned space.
  absl::Status CauseOfPoison() const;

 private:
  static constexpr int kGlances = 30;

  // Stores on which processor this rank runs. True if another rank that is awake was last seen
  // there: then it cannot run while this one looks.
  bool SharesProcessor() const;
  void Sleep(absl::FunctionRef<bool()> done, Instant deadline) const;

  const HostSpace& space_;
  const int rank_;
  // Where ranks outnumber processors, looking keeps from working the one who is waited for.
  const bool gives_way_;
  // Waits in a row that found another rank on this rank's processor.
  mutable int shared_waits_ = 0;
  WaitLog* const log_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_WAITER_H_
