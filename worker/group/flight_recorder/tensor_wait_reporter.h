// Reports a rank's collectives to the coordinator; `cohort who-is-missing` answers from the
// reports.
#ifndef COHORT_WORKER_GROUP_FLIGHT_RECORDER_TENSOR_WAIT_REPORTER_H_
#define COHORT_WORKER_GROUP_FLIGHT_RECORDER_TENSOR_WAIT_REPORTER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/report/report.h"
#include "worker/group/flight_recorder/flight_recorder.h"

namespace cohort::worker {

// Reads the flight record, so that calls cost nothing more. Thread-safe.
class TensorWaitReporter {
 public:
  // The contents of a flight record; empty without a record.
  struct Look {
    std::vector<FlightEntry> calls;  // oldest first
    std::vector<WaitedFor> waits;    // for all ranks
  };
  using Source = std::function<Look()>;

  // `source` is called by Report, on its thread; it must not block.
  void Start(Source source);
  // Once it has returned, the source does not run any more.
  void Stop();

  // `waits_for` has the ranks for which this rank has slept, in the same call, for at least half of
  // the time since the last Report. Two reports a moment apart thus show for which ranks it sleeps
  // now.
  client::TensorReport Report();

 private:
  Mutex mutex_;
  Source source_ ABSL_GUARDED_BY(mutex_);
  // The state at the last Report:
  Instant at_ ABSL_GUARDED_BY(mutex_);
  int64_t open_ ABSL_GUARDED_BY(mutex_) = 0;  // the sequence of its open call; 0: none
  std::vector<WaitedFor> waits_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_FLIGHT_RECORDER_TENSOR_WAIT_REPORTER_H_
