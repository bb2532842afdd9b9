// NCCL's calls on one device, one after the other.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_DEVICE_LOCK_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_DEVICE_LOCK_H_

#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort::worker {

// NCCL does not allow threads of a process to call it at once for communicators of one device. A
// call may never return, so waiting for another call has a deadline. Thread-safe.
class NcclDeviceLock {
 public:
  // The device's, of this process; lives for ever.
  static NcclDeviceLock& Of(int device);

  // Holds the lock for one call. Movable.
  class Guard {
   public:
    Guard(Guard&& other) noexcept : lock_(std::exchange(other.lock_, nullptr)) {}
    Guard& operator=(Guard&&) = delete;
    ~Guard() {
      if (lock_ != nullptr) lock_->Release();
    }

   private:
    friend class NcclDeviceLock;
    explicit Guard(NcclDeviceLock* device_lock) : lock_(device_lock) {}
    NcclDeviceLock* lock_;
  };
  // Errors: DEADLINE_EXCEEDED (another's call has not come back).
  absl::StatusOr<Guard> Acquire(Instant deadline);

  // Runs `call` under the lock of `device`, which is the thread's current device meanwhile. Errors:
  // those of `call`, Acquire and cuda::CurrentDevice::Set.
  static absl::Status Run(int device, Instant deadline, absl::FunctionRef<absl::Status()> call);

 private:
  explicit NcclDeviceLock(int device) : device_(device) {}
  void Release();

  const int device_;
  Mutex mutex_;
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_CLIQUE_NCCL_DEVICE_LOCK_H_
