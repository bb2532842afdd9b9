// How far a device is with the calls of a rank.
#ifndef COHORT_WORKER_COMMUNICATOR_DEVICE_PROGRESS_H_
#define COHORT_WORKER_COMMUNICATOR_DEVICE_PROGRESS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"

namespace cohort::worker {

// Told by whoever looks at the device, of all that was put on it: once of its beginning, if that is
// seen, and once of its end. Times are of the steady clock; they may have been a little sooner.
// Thread-safe; must not block.
class DeviceProgress {
 public:
  virtual ~DeviceProgress() = default;

  // Something of the call at work is put on the device: on the thread of that call, which may put
  // more of them there. Its number, by which the others name it.
  virtual int64_t Put() = 0;
  virtual void Begun(int64_t call, Instant at) = 0;
  // Both are known now better than when it was begun.
  virtual void Done(int64_t call, Instant began, Instant ended) = 0;
  // It is waited for no more: its device failed, or it was taken back from there.
  virtual void GivenUp(int64_t call, absl::StatusCode why, Instant at) = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_DEVICE_PROGRESS_H_
