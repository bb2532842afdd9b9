#include "worker/group/local_group_factory.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "client/rendezvous/connection.h"

namespace cohort::worker {

client::GroupFactory LocalGroupFactory(LocalGroupOptions options) {
  auto kept = std::make_shared<LocalGroupOptions>(std::move(options));
  return [kept](const client::GroupPlace& place) -> absl::StatusOr<std::unique_ptr<client::Group>> {
    std::shared_ptr<client::Connection>& shared = kept->membership.shared_connection;
    if (shared == nullptr) {
      COHORT_ASSIGN_OR_RETURN(shared, client::Connection::Create(kept->membership.connection));
    }
    LocalGroupOptions seat = *kept;
    seat.membership.group = place.name;
    seat.membership.rank = place.rank;
    seat.membership.world_size = place.world_size;
    seat.membership.parameters_digest = place.parameters_digest;
    seat.membership.join_timeout = place.timeout;
    seat.membership.timeout = place.timeout;
    seat.bootstrap.timeout = place.timeout;
    return LocalGroup::Create(std::move(seat));
  };
}

}  // namespace cohort::worker
