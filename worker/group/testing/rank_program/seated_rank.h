// A rank in a process of its own: a seat at the coordinator, the others met by way of the host, and
// the communicator that the plane forms with them, generation after generation.
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
  absl::Duration timeout = absl::Seconds(60);  // of joining and forming
  // How long a generation waits for more ranks once the last has come.
  absl::Duration join_window = absl::Seconds(5);
};

// One thread.
class SeatedRank {
 public:
  // `plane` outlives it.
  static absl::StatusOr<std::unique_ptr<SeatedRank>> Join(Plane& plane,
                                                          const SeatedRankOptions& options);
  ~SeatedRank();

  // Ends what there is of the generation, and forms the next with whoever comes within a few
  // seconds: the group is elastic, so ranks and their number may change.
  absl::Status Rejoin();
  // The same for those who are left of the generation, as the plane shrinks a group.
  absl::Status Shrink();

  worker::Communicator& verbs() { return *formed_.verbs; }
  // Not between a failed Rejoin and the next.
  bool has_verbs() const { return formed_.verbs != nullptr; }
  client::ProcessGroup& membership() { return seat_->membership(); }

 private:
  SeatedRank(Plane& plane, absl::Duration timeout) : plane_(plane), timeout_(timeout) {}

  // `old`: what it is to be shrunk from; null: it is formed anew.
  absl::Status Form(worker::Connections connections, worker::Communicator* old = nullptr);
  void Drop();
  // What is told to end when the generation has ended; from any thread.
  void SetCurrent(worker::Communicator* current);
  void End(const std::string& cause);

  Plane& plane_;
  const absl::Duration timeout_;
  std::unique_ptr<worker::Seat> seat_;
  Formed formed_;

  Mutex mutex_;
  worker::Communicator* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string ended_ ABSL_GUARDED_BY(mutex_);  // why this generation has
};

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SEATED_RANK_H_
