// What a rank does with tensors, as its seat tells the coordinator: `cohort who-is-missing` answers
// from that.
#ifndef COHORT_WORKER_GROUP_TENSOR_REPORTER_H_
#define COHORT_WORKER_GROUP_TENSOR_REPORTER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "client/rendezvous/report.h"
#include "worker/group/flight_recorder.h"

namespace cohort::worker {

// Reads a flight record, which is written anyway: a call costs nothing more. Thread-safe.
class TensorReporter {
 public:
  // What a flight record holds now; empty while there is none.
  struct Look {
    std::vector<FlightEntry> calls;  // oldest first
    std::vector<WaitedFor> waits;    // of all ranks
  };
  using Source = std::function<Look()>;

  // Called by Report, on its thread; must not block.
  void Start(Source source);
  // When it returns, the source does not run and will not.
  void Stop();

  // `waits_for` has the ranks for whom this rank has slept, in the same call, for half of the time
  // since the last Report: two of them a moment apart tell for whom it sleeps now.
  client::TensorReport Report();

 private:
  Mutex mutex_;
  Source source_ ABSL_GUARDED_BY(mutex_);
  // Of the last Report.
  Instant at_ ABSL_GUARDED_BY(mutex_);
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;  // the sequence of the call that was open; 0: none
  std::vector<WaitedFor> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TENSOR_REPORTER_H_
