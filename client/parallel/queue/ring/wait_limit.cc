#include "client/parallel/queue/ring/wait_limit.h"

#include <sched.h>

#include <algorithm>
#include <thread>

#include "base/cpu_pause.h"

namespace cohort::parallel {
namespace {

// Pauses; each takes some ten nanoseconds.
constexpr int kPauses = 1500;
// The most pauses between two looks: each look takes the cache line from the thread that writes it.
// Without pauses, values of 1 KiB take a tenth longer.
constexpr int kMostPauses = 4;
// Yields of the processor; one that no thread takes lasts half a microsecond.
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

}  // namespace

bool LookFor(absl::FunctionRef<bool()> done, uint32_t parties) {
  const int all = parties > Processors() ? 1 : kPauses;
  int pauses = 1;
  for (int paused = 0; paused < all; paused += pauses) {
    if (done()) return true;
    for (int i = 0; i < pauses; ++i) CpuPause();
    pauses = std::min(2 * pauses, kMostPauses);
  }
  // If other processes take the processor, each yield costs milliseconds.
  const Instant end = Clock::Steady().Now() + kMostYielding;
  for (int yield = 0; yield < kYields; ++yield) {
    sched_yield();
    if (done()) return true;
    if (Clock::Steady().Now() > end) break;
  }
  return false;
}

}  // namespace cohort::parallel
