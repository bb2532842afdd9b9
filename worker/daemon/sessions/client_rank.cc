#include "worker/daemon/sessions/client_rank.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cohort::worker {

GroupFacts ClientRank::facts() const {
  MutexLock lock(&mutex_);
  GroupFacts facts = facts_;
  if (ended_ == facts.generation) facts.ended = why_;
  return facts;
}

void ClientRank::SetFacts(GroupFacts facts) {
  MutexLock lock(&mutex_);
  facts_ = std::move(facts);
}

void ClientRank::NoteResult(int64_t generation, const absl::Status& status) {
  if (!absl::IsAborted(status) && !absl::IsDeadlineExceeded(status)) return;
  NoteEnd(generation, std::string(status.message()));
}

void ClientRank::Keep(std::vector<std::shared_ptr<const void>> owners) {
  MutexLock lock(&mutex_);
  if (kept_.size() >= kMostKept) return;
  std::move(owners.begin(), owners.end(), std::back_inserter(kept_));
}

size_t ClientRank::kept() const {
  MutexLock lock(&mutex_);
  return kept_.size();
}

void ClientRank::LetGo(size_t kept) {
  std::vector<std::shared_ptr<const void>> done;  // after unlock
  MutexLock lock(&mutex_);
  const auto end = kept_.begin() + static_cast<std::ptrdiff_t>(std::min(kept, kept_.size()));
  done.assign(std::make_move_iterator(kept_.begin()), std::make_move_iterator(end));
  kept_.erase(kept_.begin(), end);
}

void ClientRank::LetGo() {
  std::vector<std::shared_ptr<const void>> kept;  // after unlock
  MutexLock lock(&mutex_);
  kept.swap(kept_);
}

void ClientRank::NoteEnd(int64_t generation, const std::string& cause) {
  {
    MutexLock lock(&mutex_);
    if (generation <= ended_) return;
    ended_ = generation;
    why_ = cause;
  }
  if (on_ended_ != nullptr) on_ended_(generation, cause);
}

}  // namespace cohort::worker
