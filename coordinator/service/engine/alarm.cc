#include "coordinator/service/engine/alarm.h"

#include <limits>
#include <utility>

#include "base/status_macros.h"
#include "base/threads/thread.h"

namespace cohort::coordinator {
namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

int64_t ToNanos(Instant at) {
  return at == absl::InfiniteFuture() ? kNever : absl::ToUnixNanos(at);
}

}  // namespace

Alarm::Alarm(const Clock& clock, std::function<Instant()> ring)
    : clock_(clock), ring_(std::move(ring)), planned_(0) {}

Alarm::~Alarm() { Stop(); }

absl::Status Alarm::Start() {
  COHORT_ASSIGN_OR_RETURN(thread_, StartThread("cohort-alarm", [this] { Run(); }));
  return absl::OkStatus();
}

void Alarm::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
  }
  changed_.Signal();
  thread_.join();
}

void Alarm::MoveTo(Instant at) {
  const int64_t nanos = ToNanos(at);
  if (nanos >= planned_.load()) return;
  MutexLock lock(&mutex_);
  if (nanos >= planned_.load()) return;
  planned_.store(nanos);
  changed_.Signal();
}

void Alarm::Run() {
  mutex_.Lock();
  while (!stopping_) {
    const int64_t planned = planned_.load();
    const int64_t now = ToNanos(clock_.Now());
    if (planned > now) {
      changed_.WaitWithTimeout(
          &mutex_, planned == kNever ? absl::InfiniteDuration() : absl::Nanoseconds(planned - now));
      continue;
    }
    // From here on, MoveTo has an effect: the instant that `ring` returns may be computed before
    // it.
    planned_.store(kNever);
    mutex_.Unlock();
    const int64_t next = ToNanos(ring_());
    mutex_.Lock();
    if (next < planned_.load()) planned_.store(next);
  }
  mutex_.Unlock();
}

}  // namespace cohort::coordinator
