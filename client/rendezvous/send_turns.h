// Turns of sends that have to arrive in order: one at a time per lane, in the order in which they
// came. gRPC keeps no order between calls, and a repeat must not be overtaken either.
#ifndef COHORT_CLIENT_RENDEZVOUS_SEND_TURNS_H_
#define COHORT_CLIENT_RENDEZVOUS_SEND_TURNS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace cohort::client {

// Where order holds: a destination and a tag.
using SendLane = std::pair<int, std::string>;

// Thread-safe.
class SendTurns {
 public:
  // Calls `start` once: in this call if the lane is free, else in the End before it. The caller
  // then holds the lane until its End.
  void Take(const SendLane& lane, std::function<void()> start);
  // The same for a thread that waits. False: `deadline` passed first, and the caller does not hold
  // the lane.
  bool Await(const SendLane& lane, Instant deadline);
  // The holder of the lane calls it; the next waiting one gets the lane.
  void End(const SendLane& lane);

 private:
  friend class SendTurnsTest;

  struct Waiting {
    uint64_t id;
    std::function<void()> start;
  };

  // A waiting thread.
  struct Turn {
    Mutex mutex;
    bool here ABSL_GUARDED_BY(mutex) = false;
  };

  // Await, with `wait` in place of a deadline: it returns false when it gives up.
  bool AwaitTurn(const SendLane& lane, absl::FunctionRef<bool(Turn&)> wait);
  // Returns 0 if `start` ran at once.
  uint64_t Enter(const SendLane& lane, std::function<void()> start);
  // Takes the waiting one out. Returns false if its turn has already come.
  bool Withdraw(const SendLane& lane, uint64_t id);

  Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // The held lanes, with those that wait, in order.
  absl::flat_hash_map<SendLane, std::list<Waiting>> lanes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SEND_TURNS_H_
