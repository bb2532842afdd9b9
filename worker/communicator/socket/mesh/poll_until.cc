#include "worker/communicator/socket/mesh/poll_until.h"

#include <algorithm>

#include "base/threads/wait_hook.h"

namespace cohort::worker {
namespace {

// The longest wait of one system call.
constexpr absl::Duration kLongest = absl::Hours(1);

}  // namespace

bool PollUntil(std::vector<pollfd>& polled, Instant deadline) {
  HookedWait hooked;
  while (true) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    const timespec timeout = absl::ToTimespec(
        std::clamp(left, absl::ZeroDuration(), hooked.Shorten(kLongest)));
    const int ready = ppoll(polled.data(), polled.size(), &timeout, nullptr);
    if (ready > 0) return true;
    if (Clock::Steady().Now() >= deadline) return false;
    hooked.RunIfDue();
  }
}

}  // namespace cohort::worker
