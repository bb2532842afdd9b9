// Gives memory that a process has freed back to the system.
#ifndef COHORT_BASE_DAEMON_HEAP_TRIM_H_
#define COHORT_BASE_DAEMON_HEAP_TRIM_H_

#include <signal.h>

#include <cstddef>

namespace cohort {

// The C library keeps freed memory of small objects, and in a container the kernel counts it: after
// a peak, such as an attack, a daemon would stay near its limit. Thread-compatible.
class HeapTrim {
 public:
  // Compares the bytes in use with the most at looks since the last trim. Trims the heap if they are
  // fewer by a quarter and by 16 MiB. Returns whether it has trimmed.
  bool Look();

 private:
  size_t most_used_ = 0;
};

// Waits for one of the signals, which are blocked, and returns it. Looks at the heap meanwhile.
int AwaitSignal(const sigset_t& signals);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_HEAP_TRIM_H_
