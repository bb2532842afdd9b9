// Gives memory that a process has freed back to the system.
#ifndef COHORT_BASE_DAEMON_HEAP_TRIM_H_
#define COHORT_BASE_DAEMON_HEAP_TRIM_H_

#include <signal.h>

#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace cohort {

// The C library keeps freed memory of small objects, and in a container the kernel counts it: after
// a peak, such as an attack, a daemon would stay near its limit. Thread-compatible.
class HeapTrim {
 public:
  // Trims the heap if the process has more resident memory than it uses, by a quarter of that and
  // by 16 MiB more than after the last trim. A peak between two looks counts, too. Returns whether
  // it has trimmed.
  bool Look();

 private:
  size_t unused_after_trim_ = 0;
};

// A daemon that may use `memory_bytes` calls it before its first threads. The C library raises its
// threshold for memory that it gives back at once with each large object that is freed, up to 32
// MiB. With little memory, such as 512 MiB of a container, that doubled the memory of unread
// answers; so the threshold stays below 4 GiB.
//
// Threads share a number of arenas, eight for each processor by default, each of which keeps up to
// that threshold of free memory at its end; no trim gives it back. With 4 GiB and more, there is
// one for each processor and one more at most, and so few that all of them keep a sixteenth of the
// memory at most, unless the environment has MALLOC_ARENA_MAX.
void LimitKeptMemory(int64_t memory_bytes);

// How long to wait after a look at the heap that took `look`. All threads wait for memory while the
// heap is counted or trimmed, which takes tens of milliseconds once it is in many parts. So looks
// take a 300th of the time at most, but memory goes back within 30 seconds.
absl::Duration PauseAfterLook(absl::Duration look);

// Waits for one of the signals, which are blocked, and returns it. Looks at the heap meanwhile.
int AwaitSignal(const sigset_t& signals);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_HEAP_TRIM_H_
