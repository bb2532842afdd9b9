// A FIFO of sends to each peer and tag: one send at a time, in the order in which they
// came. gRPC keeps no order between calls, and a repeat must not be overtaken either.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_SEND_FIFO_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_SEND_FIFO_H_

#include <cstdint>
#include <functional>
#include <list>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/call/cancellation.h"

namespace cohort::client {

// Where order holds: a destination and a tag.
using SendFifoKey = std::pair<int, std::string>;

// Thread-safe.
class SendFifo {
 public:
  // Calls `start` once: in this call if the FIFO of `key` is free, else in the End before it. The
  // caller then holds the FIFO until its End.
  void Take(const SendFifoKey& key, std::function<void()> start);
  // The same for a thread that waits. False: `deadline` passed or the call was cancelled first, and
  // the caller does not hold the FIFO.
  bool Await(const SendFifoKey& key, Instant deadline,
             const CallCancellations& cancellations = CallCancellations(nullptr));
  // The holder of the FIFO calls it; the next waiting one gets the FIFO.
  void End(const SendFifoKey& key);

 private:
  friend class SendFifoTest;

  struct Waiting {
    uint64_t id;
    std::function<void()> start;
  };

  // A waiting thread.
  struct Wakeup {
    Mutex mutex;
    bool here ABSL_GUARDED_BY(mutex) = false;
    bool ended ABSL_GUARDED_BY(mutex) = false;  // here, or cancelled
  };

  // Await, with `wait` in place of a deadline: it returns false when it gives up.
  bool AwaitWakeup(const SendFifoKey& key, absl::FunctionRef<bool(Wakeup&)> wait);
  // Returns 0 if `start` ran at once.
  uint64_t Enter(const SendFifoKey& key, std::function<void()> start);
  // Takes the waiting one out. Returns false if its `start` has already begun.
  bool Withdraw(const SendFifoKey& key, uint64_t id);

  Mutex mutex_;
  uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  // The held FIFOs, with the sends that wait, in order.
  absl::flat_hash_map<SendFifoKey, std::list<Waiting>> fifos_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_SEND_FIFO_H_
