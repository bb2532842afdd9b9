// Times the kinds of measured work: fan-out, hand-off, callers in a loop.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_TIMING_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_TIMING_H_

#include <chrono>
#include <functional>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

using SteadyTime = std::chrono::steady_clock::time_point;
inline SteadyTime Now() { return std::chrono::steady_clock::now(); }

// Counts answers of asynchronous calls, and keeps the time of the last one and the first failure.
class Completion {
 public:
  explicit Completion(int expected) : remaining_(expected) {}

  void Done(const absl::Status& status) ABSL_LOCKS_EXCLUDED(mutex_);
  // Blocks until all answers are in. Returns the time of the last one, or the first failure.
  absl::StatusOr<SteadyTime> Wait() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  int remaining_ ABSL_GUARDED_BY(mutex_);
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  SteadyTime last_ ABSL_GUARDED_BY(mutex_);
};

// Calls `issue(member, done)` for each member on this thread, as fast as it returns. `done` must be
// called once per member, from any thread. The sample is the time from the first call to the last
// answer.
absl::StatusOr<Sample> TimeFanOut(
    int members,
    const std::function<void(int member, std::function<void(const absl::Status&)> done)>& issue);

// `count` times: `receive` blocks on a thread of its own, then `send` runs on this one. `receive`
// gets 2 ms to arrive where it parks. Each latency is from just before `send` until `receive`
// returned.
absl::StatusOr<Sample> TimeHandoffs(int count, const std::function<absl::Status()>& receive,
                                    const std::function<absl::Status()>& send);

// `callers` threads each run `call(caller)` again and again for about `duration`.
absl::StatusOr<Sample> TimeCallers(int callers, absl::Duration duration,
                                   const std::function<absl::Status(int caller)>& call);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_TIMING_H_
