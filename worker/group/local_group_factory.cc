#include "worker/group/local_group_factory.h"

#include <memory>
#include <utility>

#include "base/status_macros.h"
#include "client/rendezvous/call/connection.h"

namespace cohort::worker {

client::GroupFactory LocalGroupFactory(LocalGroupOptions options) {
  auto kept = std::make_shared<LocalGroupOptions>(std::move(options));
  return
      [kept](const client::PlannedRank& place) -> absl::StatusOr<std::unique_ptr<client::Group>> {
        std::shared_ptr<client::Connection>& shared = kept->membership.shared_connection;
        if (shared == nullptr) {
          COHORT_ASSIGN_OR_RETURN(shared, client::Connection::Create(kept->membership.connection));
        }
        LocalGroupOptions own = *kept;
        own.membership.group = place.name;
        own.membership.rank = place.rank;
        own.membership.world_size = place.world_size;
        own.membership.parameters_digest = place.parameters_digest;
        own.membership.join_timeout = place.timeout;
        own.membership.timeout = place.timeout;
        own.bootstrap.timeout = place.timeout;
        return LocalGroup::Create(std::move(own));
      };
}

}  // namespace cohort::worker
