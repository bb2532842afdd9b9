#include "worker/communicator/nccl/watchdog/nccl_in_flight.h"

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
    return absl::StrCat(Describe(work.call), " (operation ", work.sequence, ")");
  }
  const std::string first = Describe(work.message);
  return work.messages == 1 ? first : absl::StrCat(work.messages, " messages, the first a ", first);
}

absl::StatusOr<NcclInFlight::Marks> NcclInFlight::TakeMarks() {
  const Instant now = Clock::Steady().Now();
  {
    MutexLock lock(&mutex_);
    if (!free_.empty()) {
      Marks marks = std::move(free_.back());
      free_.pop_back();
      marks.taken = now;
      return marks;
    }
  }
  const auto timing = progress_ != nullptr ? cuda::Event::Timing::kOn : cuda::Event::Timing::kOff;
  COHORT_ASSIGN_OR_RETURN(cuda::Event start, cuda::Event::Create(device_, timing));
  COHORT_ASSIGN_OR_RETURN(cuda::Event end, cuda::Event::Create(device_, timing));
  return Marks{std::move(start), std::move(end), now};
}

void NcclInFlight::Add(const NcclWork& work, Marks marks, absl::Duration timeout) {
  Entry entry{work, std::move(marks), timeout};
  MutexLock lock(&mutex_);
  if (progress_ != nullptr) entry.call = progress_->Put();
  entries_.push_back(std::move(entry));
}

size_t NcclInFlight::size() const {
  MutexLock lock(&mutex_);
  return entries_.size();
}

absl::StatusOr<std::optional<NcclInFlight::First>> NcclInFlight::Look() {
  MutexLock lock(&mutex_);
  const Instant now = Clock::Steady().Now();
  while (!entries_.empty()) {
    Entry& entry = entries_.front();
    if (!entry.started.has_value()) {
      COHORT_ASSIGN_OR_RETURN(const bool started, entry.marks.start.Query());
      if (!started) return First{entry.work, false, absl::ZeroDuration(), false};
      entry.started = now;
      started_ = std::max(started_, entry.work.sequence);
      RecordBegin(entry, now);
    }
    COHORT_ASSIGN_OR_RETURN(const bool done, entry.marks.end.Query());
    if (!done) {
      entry.running = now;
      const absl::Duration ran = now - *entry.started;
      return First{entry.work, true, ran, ran > entry.timeout};
    }
    finished_ = std::max(finished_, entry.work.sequence);
    RecordEnd(entry, now);
    entries_.pop_front();
  }
  return std::nullopt;
}

void NcclInFlight::RecordBegin(const Entry& entry, Instant now) {
  if (progress_ == nullptr) return;
  progress_->Begun(entry.call, TimeOf(entry.marks.start, entry.marks.taken, now));
}

void NcclInFlight::RecordEnd(Entry& entry, Instant now) {
  if (progress_ == nullptr) {
    free_.push_back(std::move(entry.marks));
    return;
  }
  Instant ended = TimeOf(entry.marks.end, entry.running, now);
  const absl::StatusOr<absl::Duration> took =
      cuda::Event::Elapsed(entry.marks.start, entry.marks.end);
  Instant began = took.ok() ? ended - *took : *entry.started;
  if (began < entry.marks.taken) {
    // The device's clock goes slower than the host's: so it was later.
    ended = std::min(ended + (entry.marks.taken - began), now);
    began = entry.marks.taken;
  }
  progress_->Done(entry.call, began, ended);
  if (anchor_.has_value()) free_.push_back(std::move(anchor_->marks));
  anchor_ = Anchor{std::move(entry.marks), ended};
}

Instant NcclInFlight::TimeOf(const cuda::Event& mark, Instant earliest, Instant latest) const {
  if (!anchor_.has_value()) return latest;
  const absl::StatusOr<absl::Duration> since = cuda::Event::Elapsed(anchor_->marks.end, mark);
  if (!since.ok()) return latest;
  return std::min(std::max(anchor_->at + *since, earliest), latest);
}

int64_t NcclInFlight::started() const {
  MutexLock lock(&mutex_);
  return started_;
}

int64_t NcclInFlight::finished() const {
  MutexLock lock(&mutex_);
  return finished_;
}

void NcclInFlight::Clear(absl::StatusCode why) {
  MutexLock lock(&mutex_);
  if (progress_ != nullptr) {
    const Instant now = Clock::Steady().Now();
    for (const Entry& entry : entries_) progress_->GivenUp(entry.call, why, now);
  }
  entries_.clear();
}

}  // namespace cohort::worker
