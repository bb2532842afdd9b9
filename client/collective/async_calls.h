// Calls of a group that run while their caller does something else.
#ifndef COHORT_CLIENT_COLLECTIVE_ASYNC_CALLS_H_
#define COHORT_CLIENT_COLLECTIVE_ASYNC_CALLS_H_

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "client/collective/group.h"

namespace cohort::client {

// One call that was started. Cheap to copy; copies are of the same call. Thread-safe. It may be
// dropped without waiting: the call keeps its tensors alive as long as it needs them.
class PendingCall {
 public:
  PendingCall() = default;  // no call: over, OK

  // Returns the status if the call is over; does not block.
  std::optional<absl::Status> Test() const;
  // Blocks until the call is over. DEADLINE_EXCEEDED: it is not over within the timeout, and goes
  // on.
  absl::Status Wait(absl::Duration timeout = absl::InfiniteDuration()) const;
  // If the call is not over, aborts the group on all ranks, with the error that this rank
  // cancelled: other ranks wait for the call, so it cannot just be dropped. Does not block.
  void Cancel() const;
  // Runs `callback` once, with the call's status: when the call is over, on the thread that ends
  // it, or else at once, if it is over already. It must not block: later calls wait for it.
  void AddDoneCallback(std::function<void(const absl::Status&)> callback) const;

 private:
  friend class AsyncCalls;
  struct State;
  explicit PendingCall(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

// Runs calls of one group in the order in which they were started, on a thread of its own. All
// ranks start the same calls in the same order. A call of the group in another way would overtake
// those that are pending, so while this is not `idle`, a blocking call starts here too, and waits. Thread-safe;
// callers order their own threads.
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
  // Waits for the running call. The calls after it end with CANCELLED; if there are any, the group
  // is aborted, because other ranks wait for them.
  ~AsyncCalls();
  AsyncCalls(const AsyncCalls&) = delete;
  AsyncCalls& operator=(const AsyncCalls&) = delete;

  // Does not block. `call` is destroyed before its status is available. A timeout in its options
  // begins when the calls before it are over. RESOURCE_EXHAUSTED: the system starts no thread, and
  // the call does not run.
  PendingCall Start(Call call);
  // Whether all calls that were started are over.
  bool idle() const { return unfinished_.load(std::memory_order_acquire) == 0; }

 private:
  absl::Status StartThreadLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();

  Group& group_;
  std::atomic<int> unfinished_{0};
  Mutex mutex_;
  CondVar changed_;
  std::deque<std::shared_ptr<PendingCall::State>> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_ASYNC_CALLS_H_
