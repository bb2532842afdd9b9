#include "client/parallel/queue/patience.h"

#include <sched.h>

#include <thread>

namespace cohort::parallel {
namespace {

// A look costs some ten nanoseconds as long as nobody writes.
constexpr int kLooks = 1500;
// An offer of the processor that nobody takes, half a microsecond.
constexpr int kYields = 50;
constexpr absl::Duration kMostYielding = absl::Microseconds(200);

uint32_t Processors() {
  static const uint32_t kCount = [] {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof(set), &set) == 0) return static_cast<uint32_t>(CPU_COUNT(&set));
    return static_cast<uint32_t>(std::thread::hardware_concurrency());
  }();
  return kCount;
}

inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

bool LookFor(absl::FunctionRef<bool()> done, uint32_t parties) {
  const int looks = parties > Processors() ? 1 : kLooks;
  for (int look = 0; look < looks; ++look) {
    if (done()) return true;
    Pause();
  }
  // Where strangers take what is offered, each offer costs milliseconds.
  const Instant end = Clock::Steady().Now() + kMostYielding;
  for (int yield = 0; yield < kYields; ++yield) {
    sched_yield();
    if (done()) return true;
    if (Clock::Steady().Now() > end) break;
  }
  return false;
}

}  // namespace cohort::parallel
