// How far a device is with the calls of a rank.
#ifndef COHORT_WORKER_COMMUNICATOR_DEVICE_PROGRESS_H_
#define COHORT_WORKER_COMMUNICATOR_DEVICE_PROGRESS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"

namespace cohort::worker {

// Receives the progress of the work that a rank enqueues on its device, from the thread that polls
// the device: Begun at most once, then Done or GivenUp once. Times are steady time; the event may
// have happened a little earlier. Thread-safe; the methods must not block.
class DeviceProgress {
 public:
  virtual ~DeviceProgress() = default;

  // The current call enqueues work on the device; a call may enqueue several pieces. Runs on the
  // thread of that call. Returns the number that names the work in the other methods.
  virtual int64_t Put() = 0;
  virtual void Begun(int64_t call, Instant at) = 0;
  // Both times are more exact than that of Begun.
  virtual void Done(int64_t call, Instant began, Instant ended) = 0;
  // The rank no longer waits for the work: the device failed, or the work was withdrawn.
  virtual void GivenUp(int64_t call, absl::StatusCode why, Instant at) = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_DEVICE_PROGRESS_H_
