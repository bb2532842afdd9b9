// Makes groups whose seats a worker daemon keeps, and whose calls this process executes, at the
// places of a plan.
#ifndef COHORT_WORKER_GROUP_ATTACHED_GROUP_FACTORY_H_
#define COHORT_WORKER_GROUP_ATTACHED_GROUP_FACTORY_H_

#include <memory>

#include "client/collective/group_factory.h"
#include "client/collective/remote_group.h"
#include "worker/group/device_plane.h"

namespace cohort::worker {

// `options` apply to every group, except its place and the time that it may take to form. `plane`
// is that of AttachedGroup::Create. Without a session, the first group connects one, and all groups
// share it.
client::GroupFactory AttachedGroupFactory(client::RemoteGroupOptions options,
                                          std::shared_ptr<DevicePlane> plane = nullptr);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_ATTACHED_GROUP_FACTORY_H_
