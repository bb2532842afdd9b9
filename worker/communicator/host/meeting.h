// How ranks that share memory come together, and find out that they did not.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/collective.h"
#include "base/rank_set.h"
#include "worker/communicator/host/host_space.h"
#include "worker/communicator/host/waiter.h"

namespace cohort::worker {

// One rank's side. A rank that arrives at turn t has done with all that others wrote for the turns
// before, and has compared what all came for up to turn t - kAhead. So a line may be written again
// 2 * kAhead turns later, and nothing is ever reset.
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
  absl::Status Meet(const FlatCall& call, int stage, Instant deadline);

  // Returns when `root` has arrived at this turn; at the root, at once. What the others came for is
  // compared at one of the next turns: see TakeDeferredError.
  //
  // Errors: INVALID_ARGUMENT, without mark, when this rank and the root came for different things;
  // others as Meet.
  absl::Status Follow(const FlatCall& call, int root, Instant deadline);
  // Once: INVALID_ARGUMENT, what was found of turns that this rank had gone on from.
  absl::Status TakeDeferredError() {
    return deferred_error_.ok() ? absl::OkStatus()
                                : std::exchange(deferred_error_, absl::OkStatus());
  }

  // Returns when all have arrived at this rank's last turn, or never will, and at `deadline`.
  void Drain(Instant deadline) const;

  // How many turns this rank has had.
  uint64_t turn() const { return turn_; }

 private:
  // How far a rank that follows may be ahead of others.
  static constexpr uint64_t kAhead = HostSpace::kLines / 2;

  bool Here(int rank, uint64_t turn) const {
    return space_.line(rank, turn).turn.load(std::memory_order_acquire) == turn;
  }
  bool AllHere(uint64_t turn) const;
  RankSet Missing(uint64_t turn) const;

  void Arrive(const FlatCall& call, int stage);
  // Compares what all came for at the turns that it has not yet, up to `last`; waits for them.
  absl::Status CatchUp(uint64_t last, const FlatCall& call, Instant deadline);
  absl::Status AwaitAll(uint64_t turn, const FlatCall& call, Instant deadline) const;
  // Of a turn at which all are here: who came for something else than rank 0; none: nobody.
  std::optional<int> Stranger(uint64_t turn) const;
  // Whether somebody came to follow, who does not wait for all.
  bool SomebodyFollows(uint64_t turn) const;
  absl::Status Differ(uint64_t turn, int one, int other) const;
  absl::Status GiveUp(const RankSet& missing, const FlatCall& call) const;

  const HostSpace& space_;
  const Waiter& waiter_;
  const std::vector<int>& names_;
  const int rank_;
  uint64_t turn_ = 0;
  uint64_t compared_ = 0;  // up to this turn
  absl::Status deferred_error_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_MEETING_H_
