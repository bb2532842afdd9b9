// A rank in a process of its own, over several generations: a seat at the coordinator, connections
// through the host, and the plane's communicator.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SEATED_RANK_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SEATED_RANK_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "worker/communicator/communicator.h"
#include "worker/group/seat.h"
#include "worker/group/testing/rank_program/plane.h"

namespace cohort::testing {

struct SeatedRankOptions {
  std::string coordinator;
  std::string group;
  int rank = 0;
  int ranks = 1;
  absl::Duration timeout = absl::Seconds(60);  // for joining and for forming
  // How long a generation waits for more ranks after the last one has joined.
  absl::Duration join_window = absl::Seconds(5);
};

// One thread at a time.
class SeatedRank {
 public:
  // `plane` outlives it.
  static absl::StatusOr<std::unique_ptr<SeatedRank>> Join(Plane& plane,
                                                          const SeatedRankOptions& options);
  ~SeatedRank();

  // Ends the generation, and forms the next with the ranks that join within a few seconds. The
  // group is elastic: ranks and their number may change.
  absl::Status Rejoin();
  // The same for the remaining ranks of the generation: the plane shrinks the communicator.
  absl::Status Shrink();

  worker::Communicator& verbs() { return *formed_.verbs; }
  // False between a failed Rejoin and the next one.
  bool has_verbs() const { return formed_.verbs != nullptr; }
  client::ProcessGroup& membership() { return seat_->membership(); }

 private:
  SeatedRank(Plane& plane, absl::Duration timeout) : plane_(plane), timeout_(timeout) {}

  // Shrinks `old`; null: forms a new communicator.
  absl::Status Form(worker::Connections connections, worker::Communicator* old = nullptr);
  void Drop();
  // Sets the communicator that End aborts. Any thread may call it.
  void SetCurrent(worker::Communicator* current);
  void End(const std::string& cause);

  Plane& plane_;
  const absl::Duration timeout_;
  std::unique_ptr<worker::Seat> seat_;
  Formed formed_;

  Mutex mutex_;
  worker::Communicator* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string ended_ ABSL_GUARDED_BY(mutex_);  // the cause
};

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SEATED_RANK_H_
