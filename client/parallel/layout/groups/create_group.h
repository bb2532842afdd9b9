// A group of some ranks of a group, made by those ranks alone.
//
//   if (stage == 0) {
//     CreateGroupOptions options;
//     options.name = "embedding";
//     COHORT_ASSIGN_OR_RETURN(const Subgroup pair,
//                             CreateGroup(*world, {0, 3}, Role::kEmbedding, factory, options));
//     COHORT_RETURN_IF_ERROR(pair.group->AllReduce(gradient, gradient, {ReduceOp::kSum}));
//   }
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_GROUP_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_GROUP_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/collective/group_factory.h"
#include "client/parallel/layout/grid.h"
#include "client/parallel/layout/groups/create_groups.h"
#include "client/parallel/layout/role.h"

namespace cohort::parallel {

struct CreateGroupOptions {
  // The beginning of the group's name; characters of [A-Za-z0-9._+-]. Empty: "anonymous".
  std::string name;
  // Limits the wait until all members have called, and then each wait while the group forms. The
  // whole call takes at most four times as long.
  absl::Duration timeout = absl::Seconds(300);
};

// Only `members` call it, ranks of `world`, with the same members in the same order, and the same
// role and options. They check that before they create anything. The place of a rank in `members`
// is its rank in the new group. Other ranks of `world` take no part. `factory` is each rank's own,
// and is called on this thread. The group is independent of `world`: it has generations and
// failures of its own.
//
// Order. The members of one set create their groups in one order. Creations of different sets are
// independent, also where the sets overlap; but a call blocks, so ranks that create several groups
// in orders that form a circle wait for each other until the timeout.
//
// Names are WORLD@GENERATION/NAME@MEMBERS:INDEX. The members agree on the index in the exchange
// with which each creation begins; it is larger than those of all earlier creations of these
// members. So the same members may create any number of groups. A creation that failed, or that
// some members did not call, leaves nothing behind that the next one could be mistaken for.
//
// Errors: INVALID_ARGUMENT on this rank alone, before it contacts another rank (`members` has a
// rank outside of the world or twice, or lacks this one). INVALID_ARGUMENT on all members (a wrong
// name or no factory, naming that rank; or two members differ, naming both and the difference).
// DEADLINE_EXCEEDED (names the missing members). Those of `factory`. If a member fails before it
// joins, the others wait for `timeout`. If a member fails after that, it leaves the group:
// the others get ABORTED from their first call, which names it.
// Source: MPI_Comm_create_group; ncclCommInitRank with an id that one member hands to the others.
absl::StatusOr<Subgroup> CreateGroup(client::Group& world, const RankList& members, Role role,
                                     const client::GroupFactory& factory,
                                     const CreateGroupOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_GROUP_H_
