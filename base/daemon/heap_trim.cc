#include "base/daemon/heap_trim.h"

#include <errno.h>
#include <malloc.h>
#include <time.h>

#include <algorithm>

namespace cohort {
namespace {

constexpr size_t kLeastFreed = size_t{16} << 20;
constexpr timespec kBetweenLooks = {5, 0};

}  // namespace

bool HeapTrim::Look() {
  const struct mallinfo2 heap = mallinfo2();
  const size_t used = heap.uordblks;
  most_used_ = std::max(most_used_, used);
  if (most_used_ - used < std::max(kLeastFreed, most_used_ / 4)) return false;
  most_used_ = used;
  malloc_trim(0);
  return true;
}

int AwaitSignal(const sigset_t& signals) {
  HeapTrim heap;
  while (true) {
    const int signal_number = sigtimedwait(&signals, nullptr, &kBetweenLooks);
    if (signal_number > 0) return signal_number;
    if (errno == EAGAIN) heap.Look();
  }
}

}  // namespace cohort
