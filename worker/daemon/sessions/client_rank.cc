#include "worker/daemon/sessions/client_rank.h"

#include <utility>

namespace cohort::worker {

GroupFacts ClientRank::facts() const {
  MutexLock lock(&mutex_);
  GroupFacts facts = facts_;
  if (ended_ == facts.generation) facts.ended = why_;
  return facts;
}

std::string ClientRank::tenant() const {
  MutexLock lock(&mutex_);
  return facts_.tenant;
}

void ClientRank::SetFacts(GroupFacts facts) {
  MutexLock lock(&mutex_);
  facts_ = std::move(facts);
}

void ClientRank::NoteResult(int64_t generation, const absl::Status& status) {
  if (!absl::IsAborted(status) && !absl::IsDeadlineExceeded(status)) return;
  NoteEnd(generation, std::string(status.message()));
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
