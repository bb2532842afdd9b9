#include "base/threads/mutex.h"

#include <algorithm>

#include "base/clock.h"
#include "base/threads/wait_hook.h"

namespace cohort {
namespace {

// The standard library's type of deadlines does not hold longer ones. A longer wait begins again:
// waits without a deadline would need the libstdc++ of GCC 12, and RHEL 9 has that of GCC 11.
constexpr absl::Duration kLongest = absl::Hours(24 * 365);

// Returns whether so much time has passed.
bool Sleep(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
           absl::Duration longest) {
  return changed.wait_for(lock, absl::ToChronoNanoseconds(std::min(longest, kLongest))) ==
         std::cv_status::timeout;
}

}  // namespace

bool CondVar::WaitWithTimeout(Mutex* mutex, absl::Duration timeout) {
  mutex->NotifyAwaiting();
  std::unique_lock<std::mutex> lock(mutex->mutex_, std::adopt_lock);
  HookedWait wait;
  const absl::Duration longest = wait.Shorten(timeout);
  const bool timed_out = Sleep(changed_, lock, longest);
  if (timed_out && longest < timeout) {
    lock.unlock();
    wait.Run();
    lock.lock();
  }
  lock.release();
  return timed_out && timeout <= std::min(longest, kLongest);
}

bool Mutex::AwaitWithTimeout(const absl::Condition& condition, absl::Duration timeout) {
  if (condition.Eval()) return true;
  if (timeout <= absl::ZeroDuration()) return false;
  NotifyAwaiting();  // this thread may have changed their conditions
  const Instant deadline = Clock::Steady().Now() + timeout;
  HookedWait wait;
  std::unique_lock<std::mutex> lock(mutex_, std::adopt_lock);
  bool result = false;
  while (!result) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (left <= absl::ZeroDuration()) break;
    ++awaiting_;
    Sleep(let_go_, lock, wait.Shorten(left));
    --awaiting_;
    result = condition.Eval();
    if (result || !wait.due()) continue;
    lock.unlock();
    wait.Run();
    lock.lock();
    result = condition.Eval();
  }
  lock.release();
  return result;
}

}  // namespace cohort
