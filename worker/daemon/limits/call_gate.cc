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
  if (!by_identity_.HasRoom(share.identity_, 1, max_calls_)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        by_identity_.Of(share.identity_), " calls of ", share.identity_,
        " are in flight, as many as one identity may have of ", max_calls_, " (--max-calls)"));
  }
  if (active_ >= max_calls_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(active_, " calls are in flight, as many as --max-calls allows"));
  }
  ++active_;
  ++share.active_;
  by_identity_.Add(share.identity_, 1);
  return Pass(this, &share);
}

void CallGate::Leave(Share& share) {
  MutexLock lock(&mutex_);
  --active_;
  --share.active_;
  by_identity_.Add(share.identity_, -1);
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
