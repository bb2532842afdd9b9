// Makes groups in which this process is a rank that a plan gives it.
#ifndef COHORT_WORKER_GROUP_LOCAL_GROUP_FACTORY_H_
#define COHORT_WORKER_GROUP_LOCAL_GROUP_FACTORY_H_

#include "client/collective/group_factory.h"
#include "worker/group/local_group.h"

namespace cohort::worker {

// `options` apply to every group, except its rank and the time that it may take to form. Without a
// shared connection, all groups share one to `options.membership.connection`.
client::GroupFactory LocalGroupFactory(LocalGroupOptions options);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_LOCAL_GROUP_FACTORY_H_
