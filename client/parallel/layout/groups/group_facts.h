// A rank's place in its group, and the machines of the ranks. No function here contacts another
// rank.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_GROUP_FACTS_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_GROUP_FACTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/parallel/layout/grid.h"

namespace cohort::parallel {

// --- Ranks in the group, as all collectives take them. Neighbours wrap round at the ends; in a
// group of one rank, a neighbour is the rank itself.
//
// Source: GroupCoordinator.first_rank and so on, which are the GlobalRank of these.

inline int FirstRank(const client::Group& /*group*/) { return 0; }
inline int LastRank(const client::Group& group) { return group.size() - 1; }
inline int NextRank(const client::Group& group) { return (group.rank() + 1) % group.size(); }
inline int PreviousRank(const client::Group& group) {
  return (group.rank() + group.size() - 1) % group.size();
}
inline bool IsFirstRank(const client::Group& group) { return group.rank() == 0; }
inline bool IsLastRank(const client::Group& group) { return group.rank() == group.size() - 1; }

// --- From a rank in a group to its rank in the parent group, and back. `members` are the group's
// members in order: Subgroup::global_ranks, or a list of a layout.

// Errors: INVALID_ARGUMENT (outside of 0..size-1; negative ones do not count from the end).
absl::StatusOr<int> GlobalRank(const RankList& members, int rank_in_group);
// Errors: INVALID_ARGUMENT (not a member).
absl::StatusOr<int> RankInGroup(const RankList& members, int global_rank);

// --- Machines, as ranks reported them when the group formed. Ranks of one machine do not always
// share memory, for example in different containers.

// By rank: whether it is on the machine of rank `source`. Errors: INVALID_ARGUMENT (no such rank).
// Source: in_the_same_node_as, which tests for shared memory.
absl::StatusOr<std::vector<bool>> SameHost(const client::Group& group, int source = 0);
// The number of machines of the ranks.
int NodeCount(const client::Group& group);
// By rank: whether this rank reaches it through shared memory (itself: yes).
std::vector<bool> SharesMemory(const client::Group& group);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_GROUP_FACTS_H_
