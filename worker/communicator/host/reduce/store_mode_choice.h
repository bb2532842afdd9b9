// How a rank stores data that another rank reads: through the caches or past them.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_STORE_MODE_CHOICE_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_STORE_MODE_CHOICE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/communicator/host/reduce/reduce_scalar.h"

namespace cohort::worker {

// If the reader's processor shares a cache with the writer's, a line costs 2 ns through the caches
// and 4 ns past them. Otherwise (another complex or socket), each store must first take its line
// out of the reader's cache, one after the other: 27 ns, and 2 ns past the caches (EPYC). Several
// readers may be of both kinds. Ranks may move at any time, and a virtual machine does not tell
// where they run. So some of the stores are timed, and the other mode is tried if the first seems
// slow. Used by one thread at a time.
class StoreModeChoice {
 public:
  struct Step {
    Stores stores;
    bool timed;
  };
  Step Next();
  // The mode that was found best.
  Stores best() const { return mode_ == Mode::kPast ? Stores::kStreaming : Stores::kCached; }
  // Reports that the last step, a timed one, stored `bytes` in the time `took`.
  void Took(int64_t bytes, absl::Duration took);

  // Runs `body` as the next step; it stores `bytes` that others read.
  template <typename Body>
  void Run(int64_t bytes, const Body& body) {
    if (bytes < kLeastBytes) return body(Stores::kCached);
    const Step step = Next();
    if (!step.timed) return body(step.stores);
    const Instant begin = Clock::Steady().Now();
    body(step.stores);
    Took(bytes, Clock::Steady().Now() - begin);
  }

 private:
  // Below this size, reading the clock would cost more than it gains.
  static constexpr int64_t kLeastBytes = int64_t{8} << 10;

  enum class Mode : uint8_t { kThrough, kTrying, kPast };

  // The average time of a line. It leaves out the longest step, which may have been interrupted.
  struct Average {
    absl::Duration sum;
    absl::Duration longest;
    int steps = 0;

    absl::Duration value() const { return (sum - longest) / (steps - 1); }
  };

  // Switches to `mode` and drops the times measured before.
  void Take(Mode mode);

  Mode mode_ = Mode::kThrough;
  Stores last_ = Stores::kCached;
  int steps_ = 0;          // on this mode
  int slow_averages_ = 0;  // how many more slow averages are tolerated
  Average through_;
  Average past_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_STORE_MODE_CHOICE_H_
