// NCCL's calls on one device, one after the other.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_LANE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_LANE_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/mutex.h"

namespace cohort::worker {

// NCCL does not allow threads of a process to call it at once for communicators of one device. A
// call may never return, so waiting for another call has a deadline. Thread-safe.
class NcclLane {
 public:
  // The device's, of this process; lives for ever.
  static NcclLane& Of(int device);

  // One call's turn. Movable.
  class Turn {
   public:
    Turn(Turn&& other) noexcept : lane_(std::exchange(other.lane_, nullptr)) {}
    Turn& operator=(Turn&&) = delete;
    ~Turn() {
      if (lane_ != nullptr) lane_->Leave();
    }

   private:
    friend class NcclLane;
    explicit Turn(NcclLane* lane) : lane_(lane) {}
    NcclLane* lane_;
  };
  // Errors: DEADLINE_EXCEEDED (another's call has not come back).
  absl::StatusOr<Turn> Enter(Instant deadline);

 private:
  explicit NcclLane(int device) : device_(device) {}
  void Leave();

  const int device_;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_LANE_H_
