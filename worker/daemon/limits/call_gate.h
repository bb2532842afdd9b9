// Limits the calls that block at once, and waits until none does.
#ifndef COHORT_WORKER_DAEMON_LIMITS_CALL_GATE_H_
#define COHORT_WORKER_DAEMON_LIMITS_CALL_GATE_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "worker/daemon/limits/payer_counts.h"

namespace cohort::worker {

// Each blocked call has a thread of its own, so their number is limited: in all, for each session,
// and for each identity and tenant (payer_counts.h). No client can take the places of all others.
// Thread-safe.
class CallGate {
 public:
  // The calls of one session.
  class Share {
   public:
    // `payer`: the session's client.
    explicit Share(Payer payer = {}) : payer_(std::move(payer)) {}

   private:
    friend class CallGate;
    const Payer payer_;
    int active_ = 0;  // guarded by the gate's mutex
  };

  // One call's stay. Movable.
  class Pass {
   public:
    Pass(Pass&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)), share_(other.share_) {}
    Pass& operator=(Pass&&) = delete;
    ~Pass() {
      if (gate_ != nullptr) gate_->Leave(*share_);
    }

   private:
    friend class CallGate;
    Pass(CallGate* gate, Share* share) : gate_(gate), share_(share) {}
    CallGate* gate_;
    Share* share_;
  };

  CallGate(int max_calls, int max_calls_per_session)
      : max_calls_(max_calls), max_calls_per_session_(max_calls_per_session) {}

  // `share` outlives the pass. Errors: RESOURCE_EXHAUSTED, naming the flag.
  absl::StatusOr<Pass> Enter(Share& share);
  int max_calls() const { return max_calls_; }
  int active() const;
  // Waits until no call is inside. Returns false at `deadline`.
  bool AwaitIdle(Instant deadline) const;

 private:
  void Leave(Share& share);

  const int max_calls_;
  const int max_calls_per_session_;
  mutable Mutex mutex_;
  int active_ ABSL_GUARDED_BY(mutex_) = 0;
  PayerCounts by_payer_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_LIMITS_CALL_GATE_H_
