#include "worker/daemon/limits/call_gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cohort::worker {

absl::StatusOr<CallGate::Pass> CallGate::Enter(Share& share) {
  MutexLock lock(&mutex_);
  if (share.active_ >= max_calls_per_session_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(share.active_, " calls of this session are in flight, as many as ",
                     "--max-calls-per-session allows (the worker takes ", max_calls_,
                     " of all sessions, --max-calls)"));
  }
  if (const auto full = by_payer_.WhoIsFull(share.payer_, 1, max_calls_); full.has_value()) {
    return absl::ResourceExhaustedError(
        absl::StrCat(full->has, " calls of ", full->who, " are in flight, as many as one ",
                     full->kind, " may have of ", max_calls_, " (--max-calls)"));
  }
  if (active_ >= max_calls_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(active_, " calls are in flight, as many as --max-calls allows"));
  }
  ++active_;
  ++share.active_;
  by_payer_.Add(share.payer_, 1);
  return Pass(this, &share);
}

void CallGate::Leave(Share& share) {
  MutexLock lock(&mutex_);
  --active_;
  --share.active_;
  by_payer_.Add(share.payer_, -1);
}

int CallGate::active() const {
  MutexLock lock(&mutex_);
  return active_;
}

bool CallGate::AwaitIdle(Instant deadline) const {
  MutexLock lock(&mutex_);
  const auto idle = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return active_ == 0; };
  return mutex_.AwaitWithTimeout(absl::Condition(&idle), deadline - Clock::Steady().Now());
}

}  // namespace cohort::worker
