#include "base/text/line_limits.h"

#include <utility>

namespace cohort {

int64_t LineLimits::Take(Count& count, int most, Instant now) const {
  if (now >= count.period_ends) {
    count.period_ends = now + period_;
    count.lines = 0;
  }
  ++count.left_out;
  if (count.lines >= most) return 0;
  ++count.lines;
  return std::exchange(count.left_out, 0);
}

int64_t LineLimits::Take(absl::string_view key, Instant now) {
  MutexLock lock(&mutex_);
  if (keys_.size() >= kMaxKeys && !keys_.contains(key)) {
    absl::erase_if(keys_, [now](const auto& entry) {
      return now >= entry.second.period_ends && entry.second.left_out == 0;
    });
    if (keys_.size() >= kMaxKeys) keys_.clear();
  }
  Count& count = keys_[key];
  const int64_t lines = Take(count, lines_of_each_, now);
  if (lines == 0 || Take(all_, lines_of_all_, now) > 0) return lines;
  count.left_out += lines;
  return 0;
}

}  // namespace cohort
