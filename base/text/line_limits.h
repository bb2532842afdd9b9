// Limits the lines of the log that clients can cause.
#ifndef COHORT_BASE_TEXT_LINE_LIMITS_H_
#define COHORT_BASE_TEXT_LINE_LIMITS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort {

// Limits the lines of each key, such as a client, and those of all keys together, in each period.
// A line above a limit is left out, and the next line of its key says how many were. This class
// keeps kMaxKeys keys. Before another one, it drops those whose period is over and that left no
// line out. If all are busy, it drops all. Thread-safe.
class LineLimits {
 public:
  static constexpr size_t kMaxKeys = 1024;

  LineLimits(int lines_of_each, int lines_of_all, absl::Duration period)
      : lines_of_each_(lines_of_each), lines_of_all_(lines_of_all), period_(period) {}

  // Counts a line of the key. Returns 0 if it has to be left out, and otherwise 1 plus the number
  // of lines that were left out since the last one.
  int64_t Take(absl::string_view key, Instant now) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  struct Count {
    Instant period_ends = absl::InfinitePast();
    int lines = 0;
    int64_t left_out = 0;
  };
  int64_t Take(Count& count, int most, Instant now) const;

  const int lines_of_each_;
  const int lines_of_all_;
  const absl::Duration period_;
  Mutex mutex_;
  Count all_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_map<std::string, Count> keys_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort

#endif  // COHORT_BASE_TEXT_LINE_LIMITS_H_
