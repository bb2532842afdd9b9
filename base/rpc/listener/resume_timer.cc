#include "base/rpc/listener/resume_timer.h"

#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "absl/time/time.h"
#include "base/rpc/listener/guarded_socket.h"

namespace cohort {

ResumeTimer::ResumeTimer() : timer_(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)) {}

ResumeTimer::~ResumeTimer() {
  std::multimap<Instant, Socket> all;
  {
    MutexLock lock(&mutex_);
    all.swap(waiting_);
  }
  for (const auto& [at, socket] : all) ResumeSocket(socket.fd, socket.cookie);
}

bool ResumeTimer::ResumeAt(int fd, uint64_t cookie, Instant at) {
  if (!timer_.is_open()) return false;
  MutexLock lock(&mutex_);
  const auto it = waiting_.emplace(at, Socket{fd, cookie});
  if (it == waiting_.begin()) Arm(at);
  return true;
}

void ResumeTimer::Arm(Instant at) {
  itimerspec spec = {};
  // Zero would switch it off.
  const absl::Duration wait =
      std::max(at - Clock::Steady().Now(), absl::Duration(absl::Microseconds(1)));
  spec.it_value = absl::ToTimespec(wait);
  timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

void ResumeTimer::OnEvents(uint32_t) {
  uint64_t ignored = 0;
  [[maybe_unused]] const ssize_t count = read(timer_.get(), &ignored, sizeof(ignored));
  std::vector<Socket> due;
  {
    MutexLock lock(&mutex_);
    const auto end = waiting_.upper_bound(Clock::Steady().Now());
    for (auto it = waiting_.begin(); it != end; ++it) due.push_back(it->second);
    waiting_.erase(waiting_.begin(), end);
    if (!waiting_.empty()) Arm(waiting_.begin()->first);
  }
  // A reader that is resumed may pause again, which takes the lock.
  for (const Socket& socket : due) ResumeSocket(socket.fd, socket.cookie);
}

}  // namespace cohort
