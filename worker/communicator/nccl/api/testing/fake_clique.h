// Matches the operations of the ranks of one fake communicator.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_CLIQUE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_CLIQUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "worker/communicator/nccl/api/testing/fake_operation.h"

namespace cohort::worker {

// Thread-safe. The n-th collective that a rank runs matches the n-th of every other rank. A send
// matches the first receive of its peer that has no send yet. The last rank to come moves the data
// of all. Operations on which the ranks do not agree, and those that hang, wait until each rank is
// stopped.
class FakeClique {
 public:
  // `tell` is called, from any thread, with a description of a misuse that NCCL cannot bear.
  FakeClique(int ranks, std::function<void(const std::string&)> report);

  int ranks() const { return static_cast<int>(states_.size()); }

  // Begins all of them. Returns when all are done, when the rank is stopped, or when a peer has not
  // come within `timeout`.
  void Run(int rank, const std::vector<FakeOperation>& operations, absl::Duration timeout);
  // Ends the rank's operations, now and later. Other ranks wait for it in vain.
  void Stop(int rank);
  bool IsRunning(int rank);
  // Whether it runs nothing, or that came to be within `timeout`.
  bool AwaitIdle(int rank, absl::Duration timeout);

 private:
  // An operation waits for other ranks, is moved by the last of them, or is done.
  enum class Stage { kWaiting, kMoving, kDone };
  struct PendingOperation {
    std::vector<const FakeOperation*> operations;  // by rank; of a message: send, receive
    int come = 0;
    Stage stage = Stage::kWaiting;
  };
  using PendingPtr = std::shared_ptr<PendingOperation>;
  using Route = std::pair<int, int>;  // from, to
  struct RankState {
    int64_t collectives = 0;
    int running = 0;
    bool stopped = false;
  };

  // Returns the operation, which is kMoving if no rank is missing and it can be moved.
  PendingPtr Join(int rank, const FakeOperation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  PendingPtr JoinMessage(int rank, const FakeOperation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginMoving(PendingOperation& pending, bool agreed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw(const PendingPtr& pending, const FakeOperation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  RankState& state(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return states_[static_cast<size_t>(rank)];
  }

  const std::function<void(const std::string&)> report_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<RankState> states_;
  std::map<int64_t, PendingPtr> collectives_ ABSL_GUARDED_BY(mutex_);  // where ranks are missing
  std::map<Route, std::deque<PendingPtr>> sends_ ABSL_GUARDED_BY(mutex_);
  std::map<Route, std::deque<PendingPtr>> receives_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_CLIQUE_H_
