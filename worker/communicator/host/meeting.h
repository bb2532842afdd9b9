// How ranks that share memory come together, and find out that they did not.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/rank_set.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/host/host_space.h"
#include "worker/communicator/host/waiter.h"

namespace cohort::worker {

// One rank's side. A rank that arrives at turn t has done with all that others wrote for the turns
// before; and nobody arrives at t + 2 before all have arrived at t + 1. So two lines for each rank
// are enough, and nothing is ever reset.
class Meeting {
 public:
  // All outlive it. `names`: what the ranks are called in errors, by rank.
  Meeting(const HostSpace& space, const Waiter& waiter, const std::vector<int>& names, int rank);

  // What this rank brings to its next meeting: ArrivalLine::kDataBytes of them.
  char* own_data() const { return space_.line(rank_, turn_ + 1).data; }
  // What a rank brought to the last meeting. Stays until this rank comes to the next.
  const char* data(int rank) const { return space_.line(rank, turn_).data; }

  // Returns when all ranks have arrived at this turn. `stage` tells the meetings of one operation
  // apart. What was written before is seen by all behind it.
  //
  // Errors: INVALID_ARGUMENT, on all ranks alike, when they came for different things;
  // DEADLINE_EXCEEDED names who did not come, and poisons the space; ABORTED says who poisoned it.
  absl::Status Meet(const Operation& operation, int stage, Instant deadline);

  // How many turns this rank has had.
  uint64_t turn() const { return turn_; }

 private:
  bool Here(int rank) const {
    return space_.line(rank, turn_).turn.load(std::memory_order_acquire) == turn_;
  }
  bool AllHere() const;
  RankSet Missing() const;
  absl::Status GiveUp(const Operation& operation) const;
  absl::Status Mismatch(int rank) const;

  const HostSpace& space_;
  const Waiter& waiter_;
  const std::vector<int>& names_;
  const int rank_;
  uint64_t turn_ = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_
