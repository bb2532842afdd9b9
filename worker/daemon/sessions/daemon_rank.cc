#include "worker/daemon/sessions/daemon_rank.h"

#include <utility>

#include "base/status_macros.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<ClientRank>> DaemonRank::Join(LocalGroupOptions options,
                                                             Notifier notifier) {
  std::shared_ptr<DaemonRank> entry(
      new DaemonRank(options.membership.cancellation, std::move(notifier)));
  entry->tenant_ = options.membership.connection.tenant;
  options.on_end = [entry = entry.get()](int64_t generation, const std::string& cause) {
    entry->NoteEnd(generation, cause);
  };
  COHORT_ASSIGN_OR_RETURN(entry->group_, LocalGroup::Create(std::move(options)));
  entry->TakeFacts();
  return entry;
}

void DaemonRank::TakeFacts() {
  GroupFacts facts;
  facts.tenant = tenant_;
  facts.group = group_->name();
  facts.generation = group_->generation();
  facts.rank = group_->rank();
  facts.world_size = group_->size();
  facts.paths = group_->paths();
  facts.machines = group_->hosts();
  facts.why_not = group_->why_not();
  SetFacts(std::move(facts));
}

absl::Status DaemonRank::Rejoin(absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(group_->Rejoin(timeout));
  TakeFacts();
  return absl::OkStatus();
}

void DaemonRank::Abort(absl::string_view cause) { group_->Abort(absl::AbortedError(cause)); }

void DaemonRank::Leave(absl::string_view reason) {
  // A rank that does not hear this from the coordinator learns it from its connection to this rank.
  group_->membership().Leave(reason).IgnoreError();
}

absl::Status DaemonRank::SendToClient(const shm::LocalSocket&, TensorMemory, Instant) {
  return absl::FailedPreconditionError("this group was not joined as attached");
}

}  // namespace cohort::worker
