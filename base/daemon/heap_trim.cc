#include "base/daemon/heap_trim.h"

#include <errno.h>
#include <malloc.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <thread>

#include "absl/time/time.h"
#include "base/clock.h"

namespace cohort {
namespace {

constexpr size_t kLeastFreed = size_t{16} << 20;

// The resident memory that no file backs, and no shared memory.
size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0, shared = 0;
  file >> all >> resident >> shared;
  return (resident - std::min(shared, resident)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

// The resident memory that the heap does not use.
size_t UnusedBytes(size_t used) {
  const size_t resident = ResidentBytes();
  return resident - std::min(used, resident);
}

}  // namespace

bool HeapTrim::Look() {
  const struct mallinfo2 heap = mallinfo2();
  const size_t used = heap.uordblks + heap.hblkhd;
  const size_t unused = UnusedBytes(used);
  // Stacks, and free memory between objects, stay after a trim.
  unused_after_trim_ = std::min(unused_after_trim_, unused);
  if (unused - unused_after_trim_ < std::max(kLeastFreed, used / 4)) return false;
  malloc_trim(0);
  unused_after_trim_ = UnusedBytes(used);
  return true;
}

void LimitKeptMemory(int64_t memory_bytes) {
  constexpr int64_t kPlenty = int64_t{4} << 30;
  constexpr int kTrimThreshold = 1 << 20;
  constexpr int64_t kMostOfAnArena = int64_t{32} << 20;
  // Any threshold that is set no longer changes by itself. More system calls for large values are
  // the cost.
  if (memory_bytes < kPlenty) {
    mallopt(M_TRIM_THRESHOLD, kTrimThreshold);
    return;
  }
  if (std::getenv("MALLOC_ARENA_MAX") != nullptr) return;
  const int64_t arenas = std::min<int64_t>(int64_t{std::thread::hardware_concurrency()} + 1,
                                           memory_bytes / 16 / kMostOfAnArena);
  mallopt(M_ARENA_MAX, static_cast<int>(std::max<int64_t>(arenas, 2)));
}

absl::Duration PauseAfterLook(absl::Duration look) {
  constexpr int kShare = 300;
  return std::clamp(look * kShare, absl::Seconds(5), absl::Seconds(30));
}

int AwaitSignal(const sigset_t& signals) {
  HeapTrim heap;
  absl::Duration pause = PauseAfterLook(absl::ZeroDuration());
  while (true) {
    const timespec timeout = absl::ToTimespec(pause);
    const int signal_number = sigtimedwait(&signals, nullptr, &timeout);
    if (signal_number > 0) return signal_number;
    if (errno != EAGAIN) continue;
    const Instant begin = Clock::Steady().Now();
    heap.Look();
    pause = PauseAfterLook(Clock::Steady().Now() - begin);
  }
}

}  // namespace cohort
