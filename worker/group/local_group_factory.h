// Groups of which this process is a rank, wherever they are planned.
#ifndef COHORT_WORKER_GROUP_LOCAL_GROUP_FACTORY_H_
#define COHORT_WORKER_GROUP_LOCAL_GROUP_FACTORY_H_

#include "client/collective/group_factory.h"
#include "worker/group/local_group.h"

namespace cohort::worker {

// `options` of the group, but for the place and how long it may take to form. Without a shared
// connection, all its groups share one to `options.membership.connection`.
client::GroupFactory LocalGroupFactory(LocalGroupOptions options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_LOCAL_GROUP_FACTORY_H_
