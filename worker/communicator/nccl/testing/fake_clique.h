// The place where the ranks of one fake communicator meet.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_FAKE_CLIQUE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_FAKE_CLIQUE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/mutex.h"
#include "worker/communicator/nccl/testing/fake_operation.h"

namespace cohort::worker {

// Thread-safe. The n-th collective that a rank runs meets the n-th of every other rank. A send
// meets the first receive of its peer that has no send yet. The last rank to come moves the data of
// all. Operations on which the ranks do not agree, and those that hang, wait until each rank is
// stopped.
class FakeClique {
 public:
  // `tell` is called, from any thread, with a description of a misuse that NCCL cannot bear.
  FakeClique(int ranks, std::function<void(const std::string&)> tell);

  int ranks() const { return static_cast<int>(seats_.size()); }

  // Begins all of them. Returns when all are done, when the rank is stopped, or when a peer has not
  // come within `patience`.
  void Run(int rank, const std::vector<FakeOperation>& operations, absl::Duration patience);
  // Ends the rank's operations, now and later. Other ranks wait for it in vain.
  void Stop(int rank);
  bool IsRunning(int rank);
  // Whether it runs nothing, or that came to be within `patience`.
  bool AwaitIdle(int rank, absl::Duration patience);

 private:
  // What waits for others, is moved by the last of them, or is done.
  enum class Stage { kWaiting, kMoving, kDone };
  struct Meeting {
    std::vector<const FakeOperation*> operations;  // by rank; of a message: send, receive
    int come = 0;
    Stage stage = Stage::kWaiting;
  };
  using MeetingPtr = std::shared_ptr<Meeting>;
  using Route = std::pair<int, int>;  // from, to
  struct Seat {
    int64_t collectives = 0;
    int running = 0;
    bool stopped = false;
  };

  // Returns the meeting, which is kMoving if no rank is missing and it can be moved.
  MeetingPtr Join(int rank, const FakeOperation& operation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  MeetingPtr JoinMessage(int rank, const FakeOperation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void BeginMoving(Meeting& meeting, bool agreed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Withdraw(const MeetingPtr& meeting, const FakeOperation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Seat& seat(int rank) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return seats_[static_cast<size_t>(rank)];
  }

  const std::function<void(const std::string&)> tell_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<Seat> seats_;
  std::map<int64_t, MeetingPtr> collectives_ ABSL_GUARDED_BY(mutex_);  // where ranks are missing
  std::map<Route, std::deque<MeetingPtr>> sends_ ABSL_GUARDED_BY(mutex_);
  std::map<Route, std::deque<MeetingPtr>> receives_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_FAKE_CLIQUE_H_
