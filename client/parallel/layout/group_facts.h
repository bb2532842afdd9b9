// Where a rank is in its group, and on which machines the ranks are. Nothing here asks another
// rank.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GROUP_FACTS_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GROUP_FACTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/parallel/layout/grid.h"

namespace cohort::parallel {

// --- Ranks in the group, as all verbs want them. A neighbour wraps round at the ends; in a group
// of one it is the rank itself.
//
// Source: GroupCoordinator.first_rank, ..., which are global ranks: GlobalRank of these

inline int FirstRank(const client::Group& /*group*/) { return 0; }
inline int LastRank(const client::Group& group) { return group.size() - 1; }
inline int NextRank(const client::Group& group) { return (group.rank() + 1) % group.size(); }
inline int PreviousRank(const client::Group& group) {
  return (group.rank() + group.size() - 1) % group.size();
}
inline bool IsFirstRank(const client::Group& group) { return group.rank() == 0; }
inline bool IsLastRank(const client::Group& group) { return group.rank() == group.size() - 1; }

// --- Between a rank in the group and one of the group that it was made from, by the members in
// their order: Subgroup::global_ranks, or a list of a layout.

// Errors: INVALID_ARGUMENT (outside of 0..size-1; negative ones do not count from the end).
absl::StatusOr<int> GlobalRank(const RankList& members, int rank_in_group);
// Errors: INVALID_ARGUMENT (not a member).
absl::StatusOr<int> RankInGroup(const RankList& members, int global_rank);

// --- Machines, as ranks said them when the group formed. Whether ranks of one machine share memory
// is another question: containers of one machine may not, and nothing follows from where a file
// system is mounted.

// By rank: whether it is on the machine of rank `source`. Errors: INVALID_ARGUMENT (no such rank).
// Source: in_the_same_node_as, which asks for memory
absl::StatusOr<std::vector<bool>> SameHost(const client::Group& group, int source = 0);
// How many machines the ranks are on.
int NodeCount(const client::Group& group);
// By rank: whether this rank reaches it by shared memory (itself: yes). Errors: none.
std::vector<bool> SharesMemory(const client::Group& group);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GROUP_FACTS_H_
