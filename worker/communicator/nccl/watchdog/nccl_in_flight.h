// The work that one rank has enqueued on its device and does not know to be done.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_WATCHDOG_NCCL_IN_FLIGHT_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_WATCHDOG_NCCL_IN_FLIGHT_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/device_progress.h"
#include "worker/cuda/streams/event.h"

namespace cohort::worker {

// An operation of all ranks, or messages that go together.
struct NcclWork {
  int64_t sequence = 0;  // of operations, from 1; messages have none
  FlatCall call;
  size_t messages = 0;
  int replayed = 0;  // calls that were captured, and are launched as one
  Transfer message;  // the first
};
// Such as: all_reduce of 10 f32 by sum (operation 17); 3 messages, the first a send of ...
std::string Describe(const NcclWork& work);

// NCCL runs the work of a communicator in the order of its calls, whatever streams it is on: so
// only the first that is not done can run. Thread-safe.
class NcclInFlight {
 public:
  // Events around an operation, which are used again.
  struct Marks {
    cuda::Event start;
    cuda::Event end;
    Instant taken;  // the device does not begin sooner
  };
  struct First {
    NcclWork work;
    bool runs = false;   // else it waits behind other work of its stream
    absl::Duration ran;  // since that was seen
    bool late = false;   // for longer than it may
  };

  // `progress`, if any, is told of all that is added, and outlives it.
  explicit NcclInFlight(int device, DeviceProgress* progress = nullptr)
      : device_(device), progress_(progress) {}

  // Errors: those of CUDA.
  absl::StatusOr<Marks> TakeMarks();
  // Adds `work` behind all others. Both marks are recorded; `timeout` limits its run time. Called
  // on the thread of the call that put it on the device.
  void Add(const NcclWork& work, Marks marks, absl::Duration timeout);
  size_t size() const;

  // Asks the device, and removes the work that is done. Returns the first of the rest, if there is
  // one. Errors: the device's.
  absl::StatusOr<std::optional<First>> Look();
  // The last operations that were seen to begin and to be done; 0: none.
  int64_t started() const;
  int64_t finished() const;
  // Removes all work, which is given up.
  void Clear(absl::StatusCode why);

 private:
  struct Entry {
    NcclWork work;
    Marks marks;
    absl::Duration timeout;
    int64_t call = 0;  // as `progress_` names it
    std::optional<Instant> started;
    Instant running = absl::InfinitePast();  // when it was last seen not to be done
  };
  // The work that the device did last, and when; the times of other marks are relative to it.
  struct Anchor {
    Marks marks;
    Instant at;  // the end
  };

  void RecordBegin(const Entry& entry, Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Reports the end. Keeps the marks as the anchor, or gives them back.
  void RecordEnd(Entry& entry, Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // An estimate of when the device came to `mark`, which it has passed.
  Instant TimeOf(const cuda::Event& mark, Instant earliest, Instant latest) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int device_;
  DeviceProgress* const progress_;
  mutable Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::vector<Marks> free_ ABSL_GUARDED_BY(mutex_);
  std::optional<Anchor> anchor_ ABSL_GUARDED_BY(mutex_);
  int64_t started_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t finished_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_WATCHDOG_NCCL_IN_FLIGHT_H_
