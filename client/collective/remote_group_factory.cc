#include "client/collective/remote_group_factory.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace cohort::client {

absl::StatusOr<RemoteGroupOptions> SeatAt(const GroupPlace& place, RemoteGroupOptions& options) {
  if (options.session == nullptr) {
    COHORT_ASSIGN_OR_RETURN(options.session, WorkerSession::Connect(options.worker));
  }
  RemoteGroupOptions seat = options;
  seat.group = place.name;
  seat.rank = place.rank;
  seat.world_size = place.world_size;
  seat.parameters_digest = place.parameters_digest;
  seat.join_timeout = place.timeout;
  return seat;
}

GroupFactory RemoteGroupFactory(RemoteGroupOptions options) {
  auto kept = std::make_shared<RemoteGroupOptions>(std::move(options));
  return [kept](const GroupPlace& place) -> absl::StatusOr<std::unique_ptr<Group>> {
    COHORT_ASSIGN_OR_RETURN(RemoteGroupOptions seat, SeatAt(place, *kept));
    return RemoteGroup::Create(std::move(seat));
  };
}

}  // namespace cohort::client
