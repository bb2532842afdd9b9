// How ranks that share memory come together, and find out that they did not.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/host/host_space.h"

namespace cohort::worker {

// One rank's side. A rank that arrives at turn t has done with all that others wrote for the turns
// before; and nobody arrives at t + 2 before all have arrived at t + 1. So two lines for each rank
// are enough, and nothing is ever reset.
class Meeting {
 public:
  // `space` outlives it.
  Meeting(const HostSpace& space, int rank);

  // Returns when all ranks have arrived at this turn. `stage` tells the meetings of one operation
  // apart. What was written before is seen by all behind it.
  //
  // Errors: INVALID_ARGUMENT, on all ranks alike, when they came for different things;
  // DEADLINE_EXCEEDED names who did not come, and poisons the space; ABORTED says who poisoned it.
  absl::Status Meet(const Operation& operation, int stage, Instant deadline);

  // Wakes and ends all ranks. Any thread; the first cause stays.
  void Abort(absl::string_view cause);

  // How many turns this rank has had.
  uint64_t turn() const { return turn_; }

 private:
  bool Here(int rank) const;
  void WakeSleepers();
  absl::Status Await(int rank, const Operation& operation, Instant deadline);
  void Sleep(int rank, Instant deadline);
  absl::Status GiveUp(const Operation& operation);
  absl::Status Poisoned() const;
  absl::Status Compare() const;

  const HostSpace& space_;
  const int rank_;
  // Looks at a line before sleeping; less where ranks outnumber processors.
  const int looks_;
  const bool yields_;
  uint64_t turn_ = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_
