#include "worker/group/testing/rank_program/joined_rank.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/shm/heap.h"
#include "base/status_macros.h"
#include "worker/group/connections/connections.h"

namespace cohort::testing {

using worker::Communicator;
using worker::Connections;

absl::StatusOr<std::unique_ptr<JoinedRank>> JoinedRank::Join(Backend& backend,
                                                             const JoinedRankOptions& options) {
  auto result = absl::WrapUnique(new JoinedRank(backend, options.timeout));
  worker::RankMembershipOptions own;
  own.membership.connection.address = options.coordinator;
  own.membership.connection.min_backoff = absl::Milliseconds(10);
  own.membership.group = options.group;
  own.membership.rank = options.rank;
  own.membership.world_size = options.ranks;
  // The remaining ranks may continue without the others.
  own.membership.min_world_size = 1;
  own.membership.join_window = options.join_window;
  own.membership.join_timeout = options.timeout;
  own.membership.timeout = options.timeout;
  COHORT_ASSIGN_OR_RETURN(own.bootstrap.heap,
                          shm::Heap::Create("rank-program", shm::Heap::DefaultCapacity()));
  COHORT_ASSIGN_OR_RETURN(result->membership_, worker::RankMembership::Join(std::move(own)));
  COHORT_ASSIGN_OR_RETURN(Connections connections, result->membership_->Connect(options.timeout));
  COHORT_RETURN_IF_ERROR(result->Form(std::move(connections)));
  return result;
}

JoinedRank::~JoinedRank() {
  if (membership_ == nullptr) return;
  // The other ranks learn that this rank leaves before its connections close.
  membership_->StopWatching();
  Drop();
}

void JoinedRank::SetCurrent(Communicator* current) {
  MutexLock lock(&mutex_);
  current_ = current;
  if (current_ != nullptr && !ended_.empty()) current_->Abort(ended_);
}

void JoinedRank::End(const std::string& cause) {
  MutexLock lock(&mutex_);
  if (ended_.empty()) ended_ = cause;
  if (current_ != nullptr) current_->Abort(cause);
}

void JoinedRank::Drop() {
  SetCurrent(nullptr);
  formed_.communicator.reset();
  formed_.host.reset();
}

absl::Status JoinedRank::Form(Connections connections) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> host,
                          worker::MakeCommunicator(std::move(connections)));
  {
    MutexLock lock(&mutex_);
    ended_.clear();
  }
  membership_->Notify({[this](const std::string& cause) { End(cause); },
                       [this](int /*rank*/, const std::string& cause) { End(cause); }});
  COHORT_ASSIGN_OR_RETURN(formed_, backend_.Form(membership(), std::move(host), timeout_));
  // If the generation ended while it formed, the communicator is aborted now.
  SetCurrent(formed_.communicator.get());
  return absl::OkStatus();
}

absl::Status JoinedRank::Rejoin() {
  End(absl::StrCat("rank ", membership().rank(), " goes on in the next generation"));
  membership_->StopWatching();
  Drop();
  COHORT_ASSIGN_OR_RETURN(Connections connections, membership_->Rejoin(timeout_));
  return Form(std::move(connections));
}

}  // namespace cohort::testing
