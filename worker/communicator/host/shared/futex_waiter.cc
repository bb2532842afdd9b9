#include "worker/communicator/host/shared/futex_waiter.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/shm/futex.h"
#include "base/text/printable.h"
#include "base/threads/wait_hook.h"

namespace cohort::worker {
namespace {

// A look costs about ten nanoseconds while no rank writes. After so many looks the awaited rank may
// not be running, so this rank offers it the processor. A sleep costs tens of microseconds.
constexpr int kLooks = 1500;
constexpr int kYields = 300;
constexpr absl::Duration kMostYielding = absl::Milliseconds(1);
// The kernel's balancer takes tens of milliseconds to part two ranks that share a processor and
// never sleep. It places a rank that is woken on an idle processor at once. So a rank sleeps after
// so many waits in a row that found another rank on its processor.
constexpr int kSharedWaits = 20;
// Looks between two checks of the poison; yields between two checks of the poison and the clock.
constexpr int kLooksBetween = 64;
constexpr int kYieldsBetween = 8;

}  // namespace

FutexWaiter::FutexWaiter(const HostSharedMemory& space, int rank, bool gives_way, WaitLog* log)
    : space_(space), rank_(rank), gives_way_(gives_way || space.crowded()), log_(log) {}

absl::Status FutexWaiter::Await(absl::FunctionRef<bool()> done, Instant deadline,
                                absl::FunctionRef<RankSet()> absent) const {
  const int looks = gives_way_ ? 0 : kLooks;
  for (int look = 0; look < looks; ++look) {
    if (done()) return absl::OkStatus();
    if (look % kLooksBetween == 0) {
      const bool shares = SharesProcessor();
      shared_waits_ = shares ? shared_waits_ + 1 : 0;
      if (shares || poisoned()) break;
    }
    CpuPause();
  }
  if (done()) return absl::OkStatus();
  // A yield to another program can cost a time slice of milliseconds: the clock ends the yields.
  // A rank on the same processor usually arrives within the first yield, which reads no clock.
  Instant end_of_yields = absl::InfiniteFuture();
  const int yields = shared_waits_ > kSharedWaits ? 0 : kYields;
  if (yields == 0) shared_waits_ = 1;
  for (int yield = 0; yield < yields; ++yield) {
    sched_yield();
    if (done()) return absl::OkStatus();
    if (yield > 1 && yield % kYieldsBetween != 0) continue;
    if (poisoned()) break;
    const Instant now = Clock::Steady().Now();
    if (yield == 0) end_of_yields = now + kMostYielding;
    if (now > end_of_yields) break;
  }
  HookedWait hooked;
  while (!done()) {
    hooked.RunIfDue();
    // A rank may make `done` true and leave before this rank looks: then the wait has succeeded.
    if (poisoned()) return done() ? absl::OkStatus() : CauseOfPoison();
    const int left = left_count_.load(std::memory_order_acquire);
    if (left > 0) {
      const absl::Status status = CheckLeft(absent());
      if (!status.ok()) return done() ? absl::OkStatus() : status;
    }
    const Instant now = Clock::Steady().Now();
    if (now >= deadline) return absl::DeadlineExceededError("");
    // A sleep ends after kLoggedSleep, also to bound the cost of a lost wake-up.
    const Instant look_again = std::min(deadline, now + hooked.Shorten(kLoggedSleep));
    if (log_ == nullptr) {
      Sleep(done, look_again, left);
      continue;
    }
    const RankSet awaited = absent();
    Sleep(done, look_again, left);
    log_->Add(awaited, Clock::Steady().Now() - now);
  }
  return absl::OkStatus();
}

absl::Status FutexWaiter::CheckLeft(const RankSet& ranks) const {
  MutexLock lock(&mutex_);
  for (const Leaver& leaver : left_) {
    if (ranks.Contains(leaver.name)) return LeftError(leaver.cause);
  }
  return absl::OkStatus();
}

void FutexWaiter::SetLeft(int rank, int name, absl::string_view cause) {
  {
    MutexLock lock(&mutex_);
    for (const Leaver& leaver : left_) {
      if (leaver.rank == rank) return;
    }
    left_.push_back({rank, name, std::string(cause)});
    left_count_.store(static_cast<int>(left_.size()), std::memory_order_release);
  }
  FullFence();
  WakeNow(rank_);  // a thread of this process
}

RankSet FutexWaiter::Left() const {
  MutexLock lock(&mutex_);
  RankSet ranks;
  for (const Leaver& leaver : left_) ranks.Add(leaver.rank);
  return ranks;
}

absl::Status FutexWaiter::CauseOfLeaving(int rank) const {
  MutexLock lock(&mutex_);
  for (const Leaver& leaver : left_) {
    if (leaver.rank == rank) return LeftError(leaver.cause);
  }
  return absl::OkStatus();
}

bool FutexWaiter::SharesProcessor() const {
  const auto here = static_cast<uint32_t>(sched_getcpu() + 1);
  if (here == 0) return false;
  std::atomic<uint32_t>& own = space_.sleep_words(rank_).processor;
  // Others read the line: it is written only when the rank has moved.
  if (own.load(std::memory_order_relaxed) != here) own.store(here, std::memory_order_relaxed);
  for (int rank = 0; rank < space_.ranks(); ++rank) {
    if (rank == rank_) continue;
    const SleepWords& other = space_.sleep_words(rank);
    if (other.processor.load(std::memory_order_relaxed) == here &&
        other.sleeps.load(std::memory_order_relaxed) == 0) {
      return true;
    }
  }
  return false;
}

void FutexWaiter::Sleep(absl::FunctionRef<bool()> done, Instant deadline, int left) const {
  SleepWords& words = space_.sleep_words(rank_);
  const uint32_t event = words.event.load(std::memory_order_acquire);
  words.sleeps.store(1, std::memory_order_relaxed);
  space_.sleepers().fetch_add(1, std::memory_order_seq_cst);
  FullFence();
  if (!done() && !poisoned() && left_count_.load(std::memory_order_acquire) == left) {
    shm::FutexWait(words.event, event, deadline);
  }
  space_.sleepers().fetch_sub(1, std::memory_order_relaxed);
  words.sleeps.store(0, std::memory_order_relaxed);
}

void FutexWaiter::WakeNow(int rank) const {
  SleepWords& words = space_.sleep_words(rank);
  if (words.sleeps.load(std::memory_order_relaxed) == 0) return;
  // From here on the rank counts as awake. It may see the event immediately, so this comes first.
  if (words.sleeps.exchange(0, std::memory_order_relaxed) == 0) return;
  words.event.fetch_add(1, std::memory_order_release);
  shm::FutexWakeAll(words.event);
}

void FutexWaiter::WakeAllNow() const {
  for (int rank = 0; rank < space_.ranks(); ++rank) WakeNow(rank);
}

void FutexWaiter::SetPoison(absl::string_view cause) const {
  Poison& poison = space_.poison();
  uint32_t none = Poison::kNone;
  if (poison.state.compare_exchange_strong(none, Poison::kBeingWritten)) {
    const size_t size = std::min(cause.size(), Poison::kMaxText);
    std::memcpy(poison.text, cause.data(), size);
    poison.size = static_cast<uint32_t>(size);
    poison.state.store(Poison::kWritten, std::memory_order_release);
  }
  FullFence();
  WakeAllNow();
}

absl::Status FutexWaiter::CauseOfPoison() const {
  const Poison& poison = space_.poison();
  // The writer is about to finish. If it dies before that, only the text is lost.
  const Instant give_up = Clock::Steady().Now() + absl::Milliseconds(100);
  while (poison.state.load(std::memory_order_acquire) != Poison::kWritten) {
    if (Clock::Steady().Now() > give_up) {
      return absl::AbortedError("a rank ended the communicator and died before it wrote the cause");
    }
    sched_yield();
  }
  const size_t size = std::min<size_t>(poison.size, Poison::kMaxText);
  // Another process wrote the text. An empty one would leave an error without a message.
  if (size == 0) return absl::AbortedError("a rank ended the communicator and gave no cause");
  return AbortError(Printable(absl::string_view(poison.text, size)));
}

}  // namespace cohort::worker
