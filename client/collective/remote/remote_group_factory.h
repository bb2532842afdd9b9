// Groups whose ranks live in a worker daemon, wherever they are planned.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_REMOTE_GROUP_FACTORY_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_REMOTE_GROUP_FACTORY_H_

#include "client/collective/group_factory.h"
#include "client/collective/remote/remote_group.h"

namespace cohort::client {

// `options` of the group, but for the place and how long it may take to form. Without a session,
// the first group connects one, and all share it.
GroupFactory RemoteGroupFactory(RemoteGroupOptions options);

// `options` with the place. The session is that of `options`, or connected now.
absl::StatusOr<RemoteGroupOptions> RemoteOptionsFor(const PlannedRank& place,
                                                    RemoteGroupOptions& options);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_REMOTE_GROUP_FACTORY_H_
