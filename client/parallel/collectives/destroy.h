// Ends a group in bounded time.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_DESTROY_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_DESTROY_H_

#include <memory>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/collective/group.h"

namespace cohort::parallel {

//   COHORT_RETURN_IF_ERROR(Destroy(std::move(group)));          // of LocalGroup::Create and so on
//   COHORT_RETURN_IF_ERROR(Destroy(std::move(subgroup.group)));  // of CreateGroups
//
// Gives up this owner's share of the group; a unique_ptr converts. The last owner's call leaves and
// frees the group, on a thread of its own, because a GPU's library may hold memory that captured
// work still uses. No other rank takes part; their calls end with ABORTED, which names this rank.
// It must not run beside calls of this rank. If another object keeps a share, as ParallelGroups
// keeps the world's, the group is not freed. Source: destroy.
//
// Errors: DEADLINE_EXCEEDED, with the group's name and this rank: then the rest goes on in the
// background, and the program may go on or exit. FAILED_PRECONDITION: the group has other owners,
// such as ParallelGroups or a copy of a Subgroup; this share is gone, and the last owner frees the
// group.
absl::Status Destroy(std::shared_ptr<client::Group> group,
                     absl::Duration timeout = absl::Seconds(5));

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_DESTROY_H_
