#include "worker/daemon/sessions/executed_rank.h"

#include <utility>

#include "base/status_macros.h"

namespace cohort::worker {

absl::StatusOr<std::shared_ptr<ClientRank>> ExecutedRank::Join(LocalGroupOptions options,
                                                               std::shared_ptr<SharedGpu> gpu,
                                                               OnEnded on_ended) {
  std::shared_ptr<ExecutedRank> entry(
      new ExecutedRank(options.membership.cancellation, std::move(on_ended)));
  entry->tenant_ = options.membership.connection.tenant;
  options.on_end = [entry = entry.get()](int64_t generation, const std::string& cause) {
    entry->NoteEnd(generation, cause);
  };
  if (gpu != nullptr) entry->streams_ = std::make_unique<StreamOrder>(std::move(gpu));
  COHORT_ASSIGN_OR_RETURN(entry->group_, LocalGroup::Create(std::move(options)));
  entry->TakeFacts();
  return entry;
}

ExecutedRank::~ExecutedRank() {
  // Work of the group in flight may wait for the client's stream.
  if (streams_ != nullptr) streams_->Release();
}

void ExecutedRank::TakeFacts() {
  GroupFacts facts;
  facts.tenant = tenant_;
  facts.group = group_->name();
  facts.generation = group_->generation();
  facts.rank = group_->rank();
  facts.world_size = group_->size();
  facts.paths = group_->paths();
  facts.machines = group_->hosts();
  facts.why_not = group_->why_not();
  if (streams_ != nullptr) streams_->NameRank(facts.group, facts.rank);
  SetFacts(std::move(facts));
}

absl::Status ExecutedRank::Rejoin(absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(group_->Rejoin(timeout));
  LetGo();
  TakeFacts();
  return absl::OkStatus();
}

void ExecutedRank::Abort(absl::string_view cause) { group_->Abort(absl::AbortedError(cause)); }

void ExecutedRank::Leave(absl::string_view reason) {
  if (streams_ != nullptr) streams_->Release();
  // A rank that does not hear this from the coordinator learns it from its connection to this rank.
  group_->membership().Leave(reason).IgnoreError();
}

absl::Status ExecutedRank::SendToClient(const shm::LocalSocket&, TensorMemory, Instant) {
  return absl::FailedPreconditionError("this group was not joined as attached");
}

}  // namespace cohort::worker
