#include "base/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace cohort::shm {
namespace {

static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t) &&
              std::atomic<uint32_t>::is_always_lock_free);

}  // namespace

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected, Instant deadline) {
  timespec timeout = {};
  timespec* until = nullptr;
  if (deadline != absl::InfiniteFuture()) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (left <= absl::ZeroDuration()) return;
    timeout = absl::ToTimespec(left);
    until = &timeout;
  }
  syscall(SYS_futex, &word, FUTEX_WAIT, expected, until, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace cohort::shm
