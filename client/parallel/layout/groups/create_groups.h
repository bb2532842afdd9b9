// Groups of some ranks of a group, created by all of its ranks together.
//
//   COHORT_ASSIGN_OR_RETURN(std::vector<Subgroup> tensor,
//                           CreateGroups(*world, {{0, 1}, {2, 3}}, Role::kTensor, factory));
//   COHORT_RETURN_IF_ERROR(tensor[0].group->AllReduce(partial, partial, {ReduceOp::kSum}));
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_GROUPS_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_GROUPS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/collective/group_factory.h"
#include "client/parallel/layout/grid.h"
#include "client/parallel/layout/role.h"

namespace cohort::parallel {

// A group and its members: rank r of it is rank global_ranks[r] of the group that it was made from.
// The group is shared, because one group may serve several kinds of a layout. Destroy
// (client/parallel/collectives/destroy.h) ends it in bounded time.
struct Subgroup {
  std::shared_ptr<client::Group> group;
  RankList global_ranks;
  Role role = Role::kUnspecified;
};

struct CreateGroupsOptions {
  // The beginning of the groups' names; characters of [A-Za-z0-9._+-]. Empty: "anonymous".
  std::string name;
  // Whether a rank may be in several lists. If not, such lists are refused.
  bool overlap = false;
  // Limits the wait until all ranks have called, and then each wait while the groups form. The
  // whole call takes at most seven times as long, and a minute.
  absl::Duration timeout = absl::Seconds(300);
};

// All ranks of `world` call it, with the same lists, role and options. One exchange of a few bytes
// checks that before any group is created. `factory` is each rank's own, and is called on this
// thread. Returns the groups that this rank is in, in the order of `lists`: no group if it is in no
// list, and at most one unless `overlap`. The groups are independent of `world`: each has
// generations and failures of its own.
//
// Names are WORLD@GENERATION/NAME:INDEX; no two groups of the service get the same name.
//
// Errors, the same on all ranks; `world` stays usable: INVALID_ARGUMENT (the arguments of a rank,
// which it names: a rank outside of the world, twice in a list, or in two lists; an empty list; a
// wrong name. Or two ranks differ, naming both and the difference). Those of AllGatherObjects.
// Those of `factory`, on a rank that could not create its groups, which it names; then no rank
// keeps a group. If a rank fails before it has joined, the other members of that group wait
// for `timeout`. Source: GroupCoordinator, in which every process of the world must be in a list,
// and which takes the last one if a process is in two.
absl::StatusOr<std::vector<Subgroup>> CreateGroups(client::Group& world, const RankLists& lists,
                                                   Role role, const client::GroupFactory& factory,
                                                   const CreateGroupsOptions& options = {});

// Fails CreateGroups on all ranks, because this rank cannot take part in it. This rank calls it in
// place of CreateGroups. All ranks get INVALID_ARGUMENT, which names this rank and `why`. Errors:
// also those of AllGatherObjects.
absl::Status FailCreateGroups(client::Group& world, const absl::Status& why,
                              absl::Duration timeout = absl::Seconds(300));

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_GROUPS_H_
