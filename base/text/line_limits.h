// How many lines of the log a client can cause.
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
// Lines that are left out are counted. Of more than kMaxKeys keys, it forgets the quiet ones.
// Thread-safe.
class LineLimits {
 public:
  static constexpr size_t kMaxKeys = 1024;

  LineLimits(int lines_of_each, int lines_of_all, absl::Duration period)
      : lines_of_each_(lines_of_each), lines_of_all_(lines_of_all), period_(period) {}

  // For how many lines the next one of this key stands: itself, and those that were left out before
  // it. 0: leave this one out, too.
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
