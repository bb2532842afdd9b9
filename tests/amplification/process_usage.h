// The memory and processor time of a daemon, as the kernel counts them.
#ifndef COHORT_TESTS_AMPLIFICATION_PROCESS_USAGE_H_
#define COHORT_TESTS_AMPLIFICATION_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>

#include "absl/time/time.h"

namespace cohort::amplification {

class ProcessUsage {
 public:
  // The process must be of this user.
  explicit ProcessUsage(pid_t pid) : pid_(pid) {}

  int64_t ResidentBytes() const;
  // The most resident bytes since the last ResetPeak.
  int64_t PeakBytes() const;
  void ResetPeak() const;
  absl::Duration ProcessorTime() const;
  // Waits until the process takes no processor time for some milliseconds: then it has handled
  // all that a peer has sent. Gives up after `timeout`.
  void AwaitQuiet(absl::Duration timeout = absl::Seconds(20)) const;

 private:
  const pid_t pid_;
};

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_PROCESS_USAGE_H_
