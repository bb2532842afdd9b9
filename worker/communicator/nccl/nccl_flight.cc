#include "worker/communicator/nccl/nccl_flight.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {

std::string Describe(const NcclWork& work) {
  if (work.replayed > 0) {
    return absl::StrCat("replay of ", work.replayed, " recorded calls (operation ", work.sequence,
                        ")");
  }
  if (work.messages == 0) {
    return absl::StrCat(Describe(work.operation), " (operation ", work.sequence, ")");
  }
  const std::string first = Describe(work.message);
  return work.messages == 1 ? first : absl::StrCat(work.messages, " messages, the first a ", first);
}

absl::StatusOr<NcclFlight::Marks> NcclFlight::TakeMarks() {
  {
    MutexLock lock(&mutex_);
    if (!free_.empty()) {
      Marks marks = std::move(free_.back());
      free_.pop_back();
      return marks;
    }
  }
  COHORT_ASSIGN_OR_RETURN(cuda::Event start, cuda::Event::Create(device_));
  COHORT_ASSIGN_OR_RETURN(cuda::Event end, cuda::Event::Create(device_));
  return Marks{std::move(start), std::move(end)};
}

void NcclFlight::Add(const NcclWork& work, Marks marks, absl::Duration timeout) {
  MutexLock lock(&mutex_);
  entries_.push_back({work, std::move(marks), timeout, std::nullopt});
}

size_t NcclFlight::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

absl::StatusOr<std::optional<NcclFlight::First>> NcclFlight::Look() {
  MutexLock lock(&mutex_);
  const Instant now = Clock::Steady().Now();
  while (!entries_.empty()) {
    Entry& entry = entries_.front();
    if (!entry.started.has_value()) {
      COHORT_ASSIGN_OR_RETURN(const bool started, entry.marks.start.Query());
      if (!started) return First{entry.work, false, absl::ZeroDuration(), false};
      entry.started = now;
      started_ = std::max(started_, entry.work.sequence);
    }
    COHORT_ASSIGN_OR_RETURN(const bool done, entry.marks.end.Query());
    if (!done) {
      const absl::Duration ran = now - *entry.started;
      return First{entry.work, true, ran, ran > entry.timeout};
    }
    finished_ = std::max(finished_, entry.work.sequence);
    free_.push_back(std::move(entry.marks));
    entries_.pop_front();
  }
  return std::nullopt;
}

int64_t NcclFlight::started() const {
  MutexLock lock(&mutex_);
  return started_;
}

int64_t NcclFlight::finished() const {
  MutexLock lock(&mutex_);
  return finished_;
}

void NcclFlight::Clear() {
  MutexLock lock(&mutex_);
  entries_.clear();
}

}  // namespace cohort::worker
