// Calls ResumeSocket for sockets whose reading is paused, each at its time.
#ifndef COHORT_BASE_RPC_LISTENER_RESUME_TIMER_H_
#define COHORT_BASE_RPC_LISTENER_RESUME_TIMER_H_

#include <cstdint>
#include <map>

#include "base/clock.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "base/unique_fd.h"

namespace cohort {

// Thread-safe. An event loop runs it: Add(timer.fd(), EPOLLIN, timer).
class ResumeTimer final : public EventLoop::Handler {
 public:
  ResumeTimer();
  // Resumes all that still wait.
  ~ResumeTimer() override;

  // Negative: the system gave no timer.
  int fd() const { return timer_.get(); }
  // False: there is no timer.
  bool ResumeAt(int fd, uint64_t cookie, Instant at);

  void OnEvents(uint32_t events) override;

 private:
  struct Socket {
    int fd;
    uint64_t cookie;
  };

  void Arm(Instant at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const UniqueFd timer_;
  Mutex mutex_;
  std::multimap<Instant, Socket> waiting_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort

#endif  // COHORT_BASE_RPC_LISTENER_RESUME_TIMER_H_
