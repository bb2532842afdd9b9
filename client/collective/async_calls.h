// Calls of a group that run while their caller does something else.
#ifndef COHORT_CLIENT_COLLECTIVE_ASYNC_CALLS_H_
#define COHORT_CLIENT_COLLECTIVE_ASYNC_CALLS_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "client/collective/group.h"

namespace cohort::client {

// One call that was started. Cheap to copy; copies are of the same call. Thread-safe. It may be
// dropped without waiting: the call keeps its tensors alive as long as it needs them.
class PendingCall {
 public:
  PendingCall() = default;  // no call: over, OK

  // Its status, if it is over; does not block.
  std::optional<absl::Status> Test() const;
  // Blocks until it is over; DEADLINE_EXCEEDED when it is not by the timeout: then it goes on.
  absl::Status Wait(absl::Duration timeout = absl::InfiniteDuration()) const;
  // What one rank called, others wait for: it cannot be taken back from the middle. If it is not
  // over, the group is aborted on all ranks, which are told that this one has cancelled. Does not
  // block.
  void Cancel() const;

 private:
  friend class AsyncCalls;
  struct State;
  explicit PendingCall(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// Runs calls of one group in the order in which they were started, on a thread of its own: all
// ranks start the same in the same order, as they would call them. While calls are pending, the
// group is not called by other ways. Thread-safe; the order between threads is their caller's.
//
//   AsyncCalls calls(*group);
//   PendingCall sum = calls.Start([=](Group& g) { return g.AllReduce(x, y, {ReduceOp::kSum}); });
//   ...
//   COHORT_RETURN_IF_ERROR(sum.Wait());
class AsyncCalls {
 public:
  using Call = std::function<absl::Status(Group&)>;

  // `group` outlives it. Starts its thread.
  explicit AsyncCalls(Group& group);
  // Waits for the call that runs; those behind it end CANCELLED, and if there are any the group is
  // aborted, because other ranks wait for them.
  ~AsyncCalls();
  AsyncCalls(const AsyncCalls&) = delete;
  AsyncCalls& operator=(const AsyncCalls&) = delete;

  // Does not block. `call` is destroyed before its status is told. A timeout among its options
  // begins when those before it are over. RESOURCE_EXHAUSTED, and nothing is called, when the
  // system starts no thread.
  PendingCall Start(Call call);

 private:
  absl::Status StartThreadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  Group& group_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<PendingCall::State>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_ASYNC_CALLS_H_
