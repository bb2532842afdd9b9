#include "worker/daemon/sessions/client_rank.h"

#include <utility>

#include "base/abort_error.h"

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
  inboxes_.clear();
}

std::shared_ptr<ClientRank::Inbox> ClientRank::InboxOf(int source) {
  MutexLock lock(&mutex_);
  std::shared_ptr<Inbox>& inbox = inboxes_[source];
  if (inbox == nullptr) inbox = std::make_shared<Inbox>();
  return inbox;
}

void ClientRank::NoteResult(int64_t generation, const absl::Status& status) {
  if (!absl::IsAborted(status) && !absl::IsDeadlineExceeded(status)) return;
  if (IsLeftError(status)) return;
  NoteEnd(generation, std::string(status.message()));
}

void ClientRank::NoteEnd(int64_t generation, const std::string& cause) {
  {
    MutexLock lock(&mutex_);
    if (generation <= ended_) return;
    ended_ = generation;
    why_ = cause;
  }
  if (notifier_.on_ended != nullptr) notifier_.on_ended(generation, cause);
}

void ClientRank::NoteLeft(int64_t generation, int rank, const std::string& cause) const {
  if (notifier_.on_left != nullptr) notifier_.on_left(generation, rank, cause);
}

}  // namespace cohort::worker
