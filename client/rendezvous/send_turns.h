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
  // Calls `start` once: in this call when the lane is free, else in the End before it. The lane is
  // the caller's from then until its End.
  void Take(const SendLane& lane, std::function<void()> start);
  // The same for a thread that waits. False: `deadline` came first, and the lane is not the
  // caller's.
  bool Await(const SendLane& lane, Instant deadline);
  // Of whoever has the lane.
  void End(const SendLane& lane);

 private:
  friend class SendTurnsTest;

  struct Waiting {
    uint64_t id;
    std::function<void()> start;
  };

  // Of a thread that waits.
  struct Turn {
    Mutex mutex;
    bool here ABSL_GUARDED_BY(mutex) = false;
  };

  // Await, with `wait` in place of a deadline: it returns false when it gives up.
  bool AwaitTurn(const SendLane& lane, absl::FunctionRef<bool(Turn&)> wait);
  // 0: it was started at once.
  uint64_t Enter(const SendLane& lane, std::function<void()> start);
  // Whether its turn had not come; then it will not.
  bool Withdraw(const SendLane& lane, uint64_t id);

  Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // Of lanes that somebody has: who comes next.
  absl::flat_hash_map<SendLane, std::list<Waiting>> lanes_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SEND_TURNS_H_
