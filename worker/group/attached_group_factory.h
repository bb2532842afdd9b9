// Makes groups whose memberships a worker daemon keeps, and whose calls this process executes, at
// the ranks of a plan.
#ifndef COHORT_WORKER_GROUP_ATTACHED_GROUP_FACTORY_H_
#define COHORT_WORKER_GROUP_ATTACHED_GROUP_FACTORY_H_

#include <memory>

#include "client/collective/group_factory.h"
#include "client/collective/remote/remote_group.h"
#include "worker/group/gpu/gpu_context.h"

namespace cohort::worker {

// `options` apply to every group, except its rank and the time that it may take to form. `gpu`
// is that of AttachedGroup::Create. Without a session, the first group connects one, and all groups
// share it.
client::GroupFactory AttachedGroupFactory(client::RemoteGroupOptions options,
                                          std::shared_ptr<GpuContext> gpu = nullptr);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_ATTACHED_GROUP_FACTORY_H_
