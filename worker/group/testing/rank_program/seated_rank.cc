#include "worker/group/testing/rank_program/seated_rank.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/shm/heap.h"
#include "base/status_macros.h"
#include "worker/group/connections.h"

namespace cohort::testing {

using worker::Communicator;
using worker::Connections;

absl::StatusOr<std::unique_ptr<SeatedRank>> SeatedRank::Join(Plane& plane,
                                                             const SeatedRankOptions& options) {
  auto result = absl::WrapUnique(new SeatedRank(plane, options.timeout));
  worker::SeatOptions seat;
  seat.membership.connection.address = options.coordinator;
  seat.membership.connection.min_backoff = absl::Milliseconds(10);
  seat.membership.group = options.group;
  seat.membership.rank = options.rank;
  seat.membership.world_size = options.ranks;
  // The remaining ranks may continue without the others.
  seat.membership.min_world_size = 1;
  seat.membership.join_window = options.join_window;
  seat.membership.join_timeout = options.timeout;
  seat.membership.timeout = options.timeout;
  COHORT_ASSIGN_OR_RETURN(seat.bootstrap.heap,
                          shm::Heap::Create("rank-program", shm::Heap::DefaultCapacity()));
  COHORT_ASSIGN_OR_RETURN(result->seat_, worker::Seat::Take(std::move(seat)));
  COHORT_ASSIGN_OR_RETURN(Connections connections, result->seat_->Meet(options.timeout));
  COHORT_RETURN_IF_ERROR(result->Form(std::move(connections)));
  return result;
}

SeatedRank::~SeatedRank() {
  if (seat_ == nullptr) return;
  // The other ranks learn that this rank leaves before its connections close.
  seat_->Disregard();
  Drop();
}

void SeatedRank::SetCurrent(Communicator* current) {
  MutexLock lock(&mutex_);
  current_ = current;
  if (current_ != nullptr && !ended_.empty()) current_->Abort(ended_);
}

void SeatedRank::End(const std::string& cause) {
  MutexLock lock(&mutex_);
  if (ended_.empty()) ended_ = cause;
  if (current_ != nullptr) current_->Abort(cause);
}

void SeatedRank::Drop() {
  SetCurrent(nullptr);
  formed_.verbs.reset();
  formed_.host.reset();
}

absl::Status SeatedRank::Form(Connections connections, Communicator* old) {
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Communicator> host,
                          worker::MakeCommunicator(std::move(connections)));
  {
    MutexLock lock(&mutex_);
    ended_.clear();
  }
  seat_->Attend([this](const std::string& cause) { End(cause); });
  COHORT_ASSIGN_OR_RETURN(
      formed_, old == nullptr ? plane_.Form(membership(), std::move(host), timeout_)
                              : plane_.Shrink(membership(), *old, std::move(host), timeout_));
  // If the generation ended while it formed, the communicator is aborted now.
  SetCurrent(formed_.verbs.get());
  return absl::OkStatus();
}

absl::Status SeatedRank::Rejoin() {
  End(absl::StrCat("rank ", membership().rank(), " goes on in the next generation"));
  seat_->Disregard();
  Drop();
  COHORT_ASSIGN_OR_RETURN(Connections connections, seat_->Rejoin(timeout_));
  return Form(std::move(connections));
}

absl::Status SeatedRank::Shrink() {
  seat_->Disregard();
  SetCurrent(nullptr);
  // The host's communicator outlives `verbs`.
  Formed old = std::move(formed_);
  formed_ = Formed();
  absl::StatusOr<Connections> connections = seat_->Rejoin(timeout_);
  absl::Status status = connections.status();
  if (status.ok()) status = Form(*std::move(connections), old.verbs.get());
  old.verbs.reset();
  return status;
}

}  // namespace cohort::testing
