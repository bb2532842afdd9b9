#include "worker/communicator/nccl/nccl_watchdog.h"

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/thread.h"

namespace cohort::worker {
namespace {

// The pause between two looks: an operation that ends by itself is mostly looked at once.
constexpr absl::Duration kPause = absl::Milliseconds(10);

}  // namespace

NcclWatchdog& NcclWatchdog::OfProcess() {
  static auto* const watchdog = new NcclWatchdog();
  return *watchdog;
}

NcclWatchdog::~NcclWatchdog() {
  std::thread ended;
  {
    MutexLock lock(&mutex_);
    wards_.clear();
    ++run_;
    ended = std::move(thread_);
    changed_.SignalAll();
  }
  if (ended.joinable()) ended.join();
}

absl::Status NcclWatchdog::Enlist(Ward* ward) {
  MutexLock lock(&mutex_);
  if (!thread_.joinable()) {
    COHORT_ASSIGN_OR_RETURN(thread_,
                            StartThread("cohort-nccl-dog", [this, run = run_] { Run(run); }));
  }
  wards_.try_emplace(ward, false);
  return absl::OkStatus();
}

void NcclWatchdog::Watch(Ward* ward) {
  MutexLock lock(&mutex_);
  bool& in_flight = wards_.at(ward);
  if (in_flight) return;
  in_flight = true;
  if (++in_flight_ == 1) changed_.SignalAll();
}

void NcclWatchdog::Forget(Ward* ward) {
  std::thread ended;
  {
    MutexLock lock(&mutex_);
    const auto found = wards_.find(ward);
    if (found == wards_.end()) return;
    if (found->second) --in_flight_;
    wards_.erase(found);
    if (wards_.empty()) {
      ++run_;
      ended = std::move(thread_);
      changed_.SignalAll();
    }
    while (looks_at_ == ward) changed_.Wait(&mutex_);
  }
  if (ended.joinable()) ended.join();
}

bool NcclWatchdog::runs() const {
  MutexLock lock(&mutex_);
  return thread_.joinable();
}

void NcclWatchdog::Run(int64_t run) {
  MutexLock lock(&mutex_);
  while (run == run_) {
    if (in_flight_ == 0) {
      changed_.Wait(&mutex_);
      continue;
    }
    changed_.WaitWithTimeout(&mutex_, kPause);
    std::vector<Ward*> wards;
    for (const auto& [ward, in_flight] : wards_) {
      if (in_flight) wards.push_back(ward);
    }
    for (Ward* const ward : wards) {
      const auto found = wards_.find(ward);
      if (run != run_ || found == wards_.end() || !found->second) continue;
      // Work that is enqueued during the look sets this again.
      found->second = false;
      --in_flight_;
      looks_at_ = ward;
      mutex_.Unlock();
      const bool in_flight = ward->Look();
      mutex_.Lock();
      looks_at_ = nullptr;
      const auto still = wards_.find(ward);
      if (in_flight && still != wards_.end() && !still->second) {
        still->second = true;
        ++in_flight_;
      }
      changed_.SignalAll();
    }
  }
}

}  // namespace cohort::worker
