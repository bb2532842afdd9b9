#include "base/threads/hooked_call.h"

#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/notification.h"
#include "base/threads/thread.h"
#include "base/threads/wait_hook.h"

namespace cohort {

void RunHooked(absl::FunctionRef<void()> call) {
  if (WaitHook::Current() == nullptr) return call();
  Notification returned;
  absl::StatusOr<std::thread> thread = StartThread("cohort-hooked", [&] {
    call();
    returned.Notify();
  });
  if (!thread.ok()) return call();
  returned.WaitWithTimeout(absl::InfiniteDuration());
  thread->join();
}

}  // namespace cohort
