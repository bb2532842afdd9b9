#include "worker/communicator/nccl/watchdog/nccl_watchdog.h"

#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status_macros.h"
#include "base/threads/thread.h"

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
    watched_.clear();
    ++run_;
    ended = std::move(thread_);
    changed_.SignalAll();
  }
  if (ended.joinable()) ended.join();
}

absl::Status NcclWatchdog::Enlist(Watched* communicator) {
  MutexLock lock(&mutex_);
  if (!thread_.joinable()) {
    COHORT_ASSIGN_OR_RETURN(thread_,
                            StartThread("cohort-nccl-dog", [this, run = run_] { Run(run); }));
  }
  watched_.try_emplace(communicator, false);
  return absl::OkStatus();
}

void NcclWatchdog::Watch(Watched* communicator) {
  MutexLock lock(&mutex_);
  bool& in_flight = watched_.at(communicator);
  if (in_flight) return;
  in_flight = true;
  if (++in_flight_ == 1) changed_.SignalAll();
}

void NcclWatchdog::Forget(Watched* communicator) {
  std::thread ended;
  {
    MutexLock lock(&mutex_);
    const auto found = watched_.find(communicator);
    if (found == watched_.end()) return;
    if (found->second) --in_flight_;
    watched_.erase(found);
    if (watched_.empty()) {
      ++run_;
      ended = std::move(thread_);
      changed_.SignalAll();
    }
    while (looks_at_ == communicator) changed_.Wait(&mutex_);
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
    std::vector<Watched*> communicators;
    for (const auto& [communicator, in_flight] : watched_) {
      if (in_flight) communicators.push_back(communicator);
    }
    for (Watched* const communicator : communicators) {
      const auto found = watched_.find(communicator);
      if (run != run_ || found == watched_.end() || !found->second) continue;
      // Work that is enqueued during the look sets this again.
      found->second = false;
      --in_flight_;
      looks_at_ = communicator;
      mutex_.Unlock();
      const bool in_flight = communicator->Look();
      mutex_.Lock();
      looks_at_ = nullptr;
      const auto still = watched_.find(communicator);
      if (in_flight && still != watched_.end() && !still->second) {
        still->second = true;
        ++in_flight_;
      }
      changed_.SignalAll();
    }
  }
}

}  // namespace cohort::worker
