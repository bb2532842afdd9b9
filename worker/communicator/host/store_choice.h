// How a rank stores what another reads: through the caches or past them.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_STORE_CHOICE_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_STORE_CHOICE_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/clock.h"
#include "worker/communicator/host/reduce_scalar.h"

namespace cohort::worker {

// Where the reader's processor shares a cache with the writer's, a line costs 2 ns through the
// caches and 4 past them. Where it does not (another complex or socket), each store has to take its
// line out of the reader's cache first, one after the other: 27 ns, and 2 past the caches (EPYC).
// Some of several readers may be of one kind and some of the other. Who runs where may change at
// any time, and a virtual machine does not say; so some of the stores are timed, of both ways where
// the first seems slow. One thread at a time.
class StoreChoice {
 public:
  struct Step {
    Stores stores;
    bool timed;
  };
  Step Next();
  // What has been found best.
  Stores best() const { return way_ == Way::kPast ? Stores::kStreaming : Stores::kCached; }
  // The last step, a timed one, stored so many bytes and took so long.
  void Took(int64_t bytes, absl::Duration took);

  // The step that is next, of so many bytes that others read.
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
  // Of less, looking at the clock would cost more than it brings.
  static constexpr int64_t kLeastBytes = int64_t{8} << 10;

  enum class Way : uint8_t { kThrough, kTrying, kPast };

  // Of the time that a line took; the longest, which may have been interrupted, left out.
  struct Average {
    absl::Duration sum;
    absl::Duration longest;
    int steps = 0;

    absl::Duration value() const { return (sum - longest) / (steps - 1); }
  };

  // Goes on that way, and forgets what was found on another.
  void Take(Way way);

  Way way_ = Way::kThrough;
  Stores last_ = Stores::kCached;
  int steps_ = 0;     // on this way
  int patience_ = 0;  // how often more slow stores are put up with
  Average through_;
  Average past_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_STORE_CHOICE_H_
