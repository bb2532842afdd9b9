#include "worker/communicator/nccl/clique/nccl_device_lock.h"

#include <map>
#include <memory>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/cuda/device/cuda_device.h"

namespace cohort::worker {

NcclDeviceLock& NcclDeviceLock::Of(int device) {
  static auto* const mutex = new Mutex();
  static auto* const locks = new std::map<int, std::unique_ptr<NcclDeviceLock>>();
  MutexLock lock(mutex);
  std::unique_ptr<NcclDeviceLock>& device_lock = (*locks)[device];
  if (device_lock == nullptr) device_lock = absl::WrapUnique(new NcclDeviceLock(device));
  return *device_lock;
}

absl::StatusOr<NcclDeviceLock::Guard> NcclDeviceLock::Acquire(Instant deadline) {
  MutexLock lock(&mutex_);
  if (busy_) {
    const auto free = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !busy_; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&free), deadline - Clock::Steady().Now())) {
      return absl::DeadlineExceededError(
          absl::StrCat("another group's call of NCCL on device ", device_, " does not return"));
    }
  }
  busy_ = true;
  return Guard(this);
}

absl::Status NcclDeviceLock::Run(int device, Instant deadline,
                                 absl::FunctionRef<absl::Status()> call) {
  COHORT_ASSIGN_OR_RETURN(const cuda::CurrentDevice current, cuda::CurrentDevice::Set(device));
  COHORT_ASSIGN_OR_RETURN(const Guard guard, Of(device).Acquire(deadline));
  return call();
}

void NcclDeviceLock::Release() {
  MutexLock lock(&mutex_);
  busy_ = false;
}

}  // namespace cohort::worker
