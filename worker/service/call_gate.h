// How many calls block at once, and whether any does.
#ifndef COHORT_WORKER_SERVICE_CALL_GATE_H_
#define COHORT_WORKER_SERVICE_CALL_GATE_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace cohort::worker {

// Each blocked call has a thread of its own, so there must be an end to them. Thread-safe.
class CallGate {
 public:
  // One call's stay. Movable.
  class Pass {
   public:
    Pass(Pass&& other) noexcept : gate_(std::exchange(other.gate_, nullptr)) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave();
    }

   private:
    friend class CallGate;
    explicit Pass(CallGate* gate) : gate_(gate) {}
    CallGate* gate_;
  };

  explicit CallGate(int max_calls) : max_calls_(max_calls) {}

  // Errors: RESOURCE_EXHAUSTED, naming the flag.
  absl::StatusOr<Pass> Enter();
  int active() const;
  // False: some are still here.
  bool AwaitIdle(Instant deadline) const;

 private:
  void Leave();

  const int max_calls_;
  mutable Mutex mutex_;
  int active_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_CALL_GATE_H_
