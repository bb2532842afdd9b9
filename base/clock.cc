#include "base/clock.h"

#include <chrono>

namespace cohort {
namespace {

class SteadyClock final : public Clock {
 public:
  Instant Now() const override {
    return absl::UnixEpoch() +
           absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  }
};

}  // namespace

const Clock& Clock::Steady() {
  // Never destroyed: threads that outlive main() look at it too.
  static const auto* const clock = new SteadyClock();
  return *clock;
}

}  // namespace cohort
