// Groups of some ranks of a group, made by all of them together.
//
//   COHORT_ASSIGN_OR_RETURN(std::vector<Subgroup> tensor,
//                           CreateGroups(*world, {{0, 1}, {2, 3}}, Role::kTensor, factory));
//   COHORT_RETURN_IF_ERROR(tensor[0].group->AllReduce(partial, partial, {ReduceOp::kSum}));
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_CREATE_GROUPS_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_CREATE_GROUPS_H_

#include <memory>
#include <string>
#include <vector>

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
  // What the names of the groups begin with; characters of [A-Za-z0-9._+-]. Empty: "anonymous".
  std::string name;
  // A rank may be in several lists. Otherwise that is refused.
  bool overlap = false;
  // For all ranks to call this; then, of each wait while the groups form. In all, at most seven
  // times that, and a minute.
  absl::Duration timeout = absl::Seconds(300);
};

// All ranks of `world` call it, with the same lists, role and options, which is checked before
// anything is made, in one exchange of a few bytes; `factory` is each rank's own, and is called on
// this thread. Returns the groups that this rank is in, in the order of `lists`: none where it is
// in no list, one unless `overlap`. They live apart from `world`: each has generations and failures
// of its own.
//
// Names are WORLD@GENERATION/NAME:INDEX, which no two groups of the service have had.
//
// Errors, on all ranks the same, and `world` works on: INVALID_ARGUMENT (a rank's arguments: a rank
// outside of the world, twice in a list, or in two; an empty list; a name; naming that rank. Or two
// ranks differ, naming both, and what in). Those of `factory` and of AllGatherObjects: of a rank
// that could not make its groups, with its name; then no rank keeps any. While a rank fails before
// it has taken its seat, those who form a group with it wait for `timeout`.
// Source: GroupCoordinator, of which all processes of the world must be in a list, and in the last
// if they are in two.
absl::StatusOr<std::vector<Subgroup>> CreateGroups(client::Group& world, const RankLists& lists,
                                                   Role role, const client::GroupFactory& factory,
                                                   const CreateGroupsOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_CREATE_GROUPS_H_
