#include "worker/group/attached_group_factory.h"

#include <utility>

#include "base/status_macros.h"
#include "client/collective/remote/remote_group_factory.h"
#include "worker/group/attached_group.h"

namespace cohort::worker {

client::GroupFactory AttachedGroupFactory(client::RemoteGroupOptions options,
                                          std::shared_ptr<GpuContext> gpu) {
  auto kept = std::make_shared<client::RemoteGroupOptions>(std::move(options));
  return [kept,
          gpu](const client::PlannedRank& place) -> absl::StatusOr<std::unique_ptr<client::Group>> {
    COHORT_ASSIGN_OR_RETURN(client::RemoteGroupOptions joining,
                            client::RemoteOptionsFor(place, *kept));
    return AttachedGroup::Create(std::move(joining), gpu);
  };
}

}  // namespace cohort::worker
