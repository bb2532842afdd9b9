// A rank in a process of its own, over several generations: its membership at the coordinator,
// connections through the host, and the backend's communicator.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_JOINED_RANK_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_JOINED_RANK_H_

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "worker/communicator/communicator.h"
#include "worker/group/membership/rank_membership.h"
#include "worker/group/testing/rank_program/backend.h"

namespace cohort::testing {

struct JoinedRankOptions {
  std::string coordinator;
  std::string group;
  int rank = 0;
  int ranks = 1;
  absl::Duration timeout = absl::Seconds(60);  // for joining and for forming
  // How long a generation waits for more ranks after the last one has joined.
  absl::Duration join_window = absl::Seconds(5);
};

// One thread at a time.
class JoinedRank {
 public:
  // `backend` outlives it.
  static absl::StatusOr<std::unique_ptr<JoinedRank>> Join(Backend& backend,
                                                          const JoinedRankOptions& options);
  ~JoinedRank();

  // Ends the generation, and forms the next with the ranks that join within a few seconds. The
  // group is elastic: ranks and their number may change.
  absl::Status Rejoin();

  worker::Communicator& communicator() { return *formed_.communicator; }
  // False between a failed Rejoin and the next one.
  bool has_communicator() const { return formed_.communicator != nullptr; }
  client::ProcessGroup& membership() { return membership_->process_group(); }

 private:
  JoinedRank(Backend& backend, absl::Duration timeout) : backend_(backend), timeout_(timeout) {}

  absl::Status Form(worker::Connections connections);
  void Drop();
  // Sets the communicator that End aborts. Any thread may call it.
  void SetCurrent(worker::Communicator* current);
  void End(const std::string& cause);

  Backend& backend_;
  const absl::Duration timeout_;
  std::unique_ptr<worker::RankMembership> membership_;
  Formed formed_;

  Mutex mutex_;
  worker::Communicator* current_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string ended_ ABSL_GUARDED_BY(mutex_);  // the cause
};

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_JOINED_RANK_H_
