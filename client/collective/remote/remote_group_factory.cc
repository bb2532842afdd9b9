#include "client/collective/remote/remote_group_factory.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"

namespace cohort::client {

absl::StatusOr<RemoteGroupOptions> RemoteOptionsFor(const PlannedRank& place,
                                                    RemoteGroupOptions& options) {
  if (options.session == nullptr) {
    COHORT_ASSIGN_OR_RETURN(options.session, WorkerSession::Connect(options.worker));
  }
  RemoteGroupOptions joining = options;
  joining.group = place.name;
  joining.rank = place.rank;
  joining.world_size = place.world_size;
  joining.min_world_size = 0;
  joining.parameters_digest = place.parameters_digest;
  joining.join_timeout = place.timeout;
  return joining;
}

GroupFactory RemoteGroupFactory(RemoteGroupOptions options) {
  auto kept = std::make_shared<RemoteGroupOptions>(std::move(options));
  return [kept](const PlannedRank& place) -> absl::StatusOr<std::unique_ptr<Group>> {
    COHORT_ASSIGN_OR_RETURN(RemoteGroupOptions joining, RemoteOptionsFor(place, *kept));
    return RemoteGroup::Create(std::move(joining));
  };
}

}  // namespace cohort::client
