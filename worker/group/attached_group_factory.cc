#include "worker/group/attached_group_factory.h"

#include <utility>

#include "base/status_macros.h"
#include "client/collective/remote_group_factory.h"
#include "worker/group/attached_group.h"

namespace cohort::worker {

client::GroupFactory AttachedGroupFactory(client::RemoteGroupOptions options,
                                          std::shared_ptr<DevicePlane> plane) {
  auto kept = std::make_shared<client::RemoteGroupOptions>(std::move(options));
  return [kept, plane](
             const client::GroupPlace& place) -> absl::StatusOr<std::unique_ptr<client::Group>> {
    COHORT_ASSIGN_OR_RETURN(client::RemoteGroupOptions seat, client::SeatAt(place, *kept));
    return AttachedGroup::Create(std::move(seat), plane);
  };
}

}  // namespace cohort::worker
