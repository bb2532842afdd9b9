#include "worker/communicator/host/reduce/store_mode_choice.h"

#include <algorithm>

#include "worker/communicator/host/shared/host_shared_memory.h"

namespace cohort::worker {
namespace {

// Stores to a shared cache never take this long for a line, unless their data comes from memory.
constexpr absl::Duration kSuspicious = absl::Nanoseconds(8);
// Stores past the caches must be faster by this factor, or the readers' loss is not worth it.
constexpr int kWorthIt = 2;
// The timed steps of an average, and the steps from one timed step to the next. Steps may go to
// several readers in turn, so these numbers have no divisor in common with small numbers of
// readers.
constexpr int kAveraged = 7;
constexpr int kTimedEach = 5;
// In mode kPast, one of so many steps goes through the caches. Its slow stores do not matter.
constexpr int kLookedBackEach = 127;
// How many slow averages are tolerated after the other mode was tried in vain.
constexpr int kSlowAverages = 32;

}  // namespace

StoreModeChoice::Step StoreModeChoice::Next() {
  ++steps_;
  bool timed = true;
  last_ = Stores::kStreaming;
  switch (mode_) {
    case Mode::kThrough:
      last_ = Stores::kCached;
      timed = steps_ % kTimedEach == 0;
      break;
    case Mode::kTrying:
      break;
    case Mode::kPast:
      if (steps_ % kLookedBackEach == 0) last_ = Stores::kCached;
      timed = steps_ % kLookedBackEach <= 1;
      break;
  }
  return {last_, timed};
}

void StoreModeChoice::Took(int64_t bytes, absl::Duration took) {
  Average& average = last_ == Stores::kCached ? through_ : past_;
  const absl::Duration line = took / (bytes / static_cast<int64_t>(kCacheLine));
  average.sum += line;
  average.longest = std::max(average.longest, line);
  ++average.steps;
  switch (mode_) {
    case Mode::kThrough:
      if (through_.steps < kAveraged) return;
      if (through_.value() > kSuspicious && --slow_averages_ < 0) {
        mode_ = Mode::kTrying;
      } else {
        through_ = {};
      }
      return;
    case Mode::kTrying:
      if (past_.steps < kAveraged) return;
      if (through_.value() > kWorthIt * past_.value()) return Take(Mode::kPast);
      slow_averages_ = kSlowAverages;
      return Take(Mode::kThrough);
    case Mode::kPast:
      if (through_.steps < kAveraged || past_.steps < kAveraged) return;
      if (through_.value() <= kWorthIt * past_.value()) return Take(Mode::kThrough);
      through_ = past_ = {};
      return;
  }
}

void StoreModeChoice::Take(Mode mode) {
  mode_ = mode;
  steps_ = 0;
  through_ = past_ = {};
}

}  // namespace cohort::worker
