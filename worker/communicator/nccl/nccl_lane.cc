#include "worker/communicator/nccl/nccl_lane.h"

#include <map>
#include <memory>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {

NcclLane& NcclLane::Of(int device) {
  static auto* const mutex = new Mutex();
  static auto* const lanes = new std::map<int, std::unique_ptr<NcclLane>>();
  MutexLock lock(mutex);
  std::unique_ptr<NcclLane>& lane = (*lanes)[device];
  if (lane == nullptr) lane = absl::WrapUnique(new NcclLane(device));
  return *lane;
}

absl::StatusOr<NcclLane::Turn> NcclLane::Enter(Instant deadline) {
  MutexLock lock(&mutex_);
  if (busy_) {
    const auto free = [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !busy_; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&free), deadline - Clock::Steady().Now())) {
      return absl::DeadlineExceededError(
          absl::StrCat("another group's call of NCCL on device ", device_, " does not return"));
    }
  }
  busy_ = true;
  return Turn(this);
}

void NcclLane::Leave() {
  MutexLock lock(&mutex_);
  busy_ = false;
}

}  // namespace cohort::worker
