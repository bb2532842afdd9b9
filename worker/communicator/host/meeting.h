// A barrier of ranks that share memory. It compares their calls and names the ranks that do not
// come.
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

// One rank's side. A rank that arrives at turn t no longer reads data of earlier turns, and has
// compared the calls of all ranks up to turn t - kAhead. So a line may be rewritten 2 * kAhead
// turns later, and nothing is ever reset.
class Meeting {
 public:
  // The arguments outlive the meeting. `names`: the ranks' numbers in errors, by rank.
  Meeting(const HostSpace& space, const Waiter& waiter, const std::vector<int>& names, int rank);

  // The data that this rank brings to its next meeting: ArrivalLine::kDataBytes bytes.
  char* own_data() const { return space_.line(rank_, turn_ + 1).data; }
  // The data that a rank brought to the last meeting. It stays until this rank comes to the next
  // one.
  const char* data(int rank) const { return space_.line(rank, turn_).data; }

  // Waits until all ranks have arrived at this turn. `stage` distinguishes the meetings of one
  // operation. Writes before the meeting are visible to all ranks after it.
  //
  // Errors: INVALID_ARGUMENT (the ranks called different collectives; all ranks get it),
  // DEADLINE_EXCEEDED (names the ranks that did not come, and poisons the space), ABORTED (the
  // cause of the poison).
  absl::Status Meet(const FlatCall& call, int stage, Instant deadline);

  // Waits until `root` has arrived at this turn; the root does not wait. A rank that is kAhead
  // turns ahead first waits for the ranks behind it. The other ranks' calls are compared at a later
  // turn: see TakeDeferredError.
  //
  // Errors: INVALID_ARGUMENT without the mark (this rank and the root called different
  // collectives); others as Meet.
  absl::Status Follow(const FlatCall& call, int root, Instant deadline);
  // Returns, once, a mismatch at an earlier turn that this rank had already left
  // (INVALID_ARGUMENT).
  absl::Status TakeDeferredError() {
    return deferred_error_.ok() ? absl::OkStatus()
                                : std::exchange(deferred_error_, absl::OkStatus());
  }

  // Waits until all ranks have arrived at this rank's last turn, until they cannot any more, or
  // until `deadline`.
  void Drain(Instant deadline) const;

  // How many turns this rank has had.
  uint64_t turn() const { return turn_; }

 private:
  // How many turns a rank that follows may be ahead of others.
  static constexpr uint64_t kAhead = HostSpace::kLines / 2;

  bool Here(int rank, uint64_t turn) const {
    return space_.line(rank, turn).turn.load(std::memory_order_acquire) == turn;
  }
  bool AllHere(uint64_t turn) const;
  RankSet Missing(uint64_t turn) const;

  void Arrive(const FlatCall& call, int stage);
  // Compares the calls of all ranks at the turns that it has not compared yet, up to `last`, and
  // waits for the ranks. Goes on past `last` while all ranks have come.
  absl::Status CatchUp(uint64_t last, const FlatCall& call, Instant deadline);
  absl::Status AwaitAll(uint64_t turn, const FlatCall& call, Instant deadline) const;
  // Returns the first rank whose call at `turn` differs from rank 0's; absent: all are equal. All
  // ranks have come to `turn`.
  std::optional<int> Stranger(uint64_t turn) const;
  // Whether a rank came to Follow, which does not wait for all ranks.
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
