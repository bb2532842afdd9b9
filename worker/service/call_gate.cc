#include "worker/service/call_gate.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace cohort::worker {

absl::StatusOr<CallGate::Pass> CallGate::Enter() {
  MutexLock lock(&mutex_);
  if (active_ >= max_calls_) {
    return absl::ResourceExhaustedError(
        absl::StrCat(active_, " calls are in flight, as many as --max-calls allows"));
  }
  ++active_;
  return Pass(this);
}

void CallGate::Leave() {
  MutexLock lock(&mutex_);
  --active_;
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
