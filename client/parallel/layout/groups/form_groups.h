// Creates groups that all ranks of a world have planned alike.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_FORM_GROUPS_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_FORM_GROUPS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/collective/group_factory.h"
#include "client/parallel/layout/grid.h"
#include "client/parallel/layout/groups/parameter_agreement.h"

namespace cohort::parallel {

struct PlannedGroup {
  std::string base;  // of the group's name
  RankList ranks;    // in the world; their places are the ranks in the group
};

struct FormedGroup {
  size_t number = 0;  // in the plan
  std::shared_ptr<client::Group> group;
};

// OK, or INVALID_ARGUMENT: `base` cannot be part of a group's name.
absl::Status CheckBase(absl::string_view base);

// All ranks of `world` call it. `proposal` has everything that determines `plan`, or a problem,
// which all ranks then get as their error. Returns the groups that this rank is in, in the order of
// the plan. Every rank creates its groups in that order, so overlapping groups never wait in a
// circle. A rank that failed waits for the others only as long as they may still be at work:
// DEADLINE_EXCEEDED names those that are. A rank that dies is named at once to the ranks that wait
// here. Ranks that are creating a group with it learn of it after that has timed out, because
// factories cannot be interrupted.
//
// A group is named WORLD@GENERATION/BASE:INDEX. The ranks agree on the index, which is larger than
// those of all earlier groups of that base: the service never sees a name twice.
absl::StatusOr<std::vector<FormedGroup>> FormGroups(client::Group& world, Proposal proposal,
                                                    const std::vector<PlannedGroup>& plan,
                                                    const client::GroupFactory& factory,
                                                    absl::Duration timeout);

// The same for one group of `party.members`; only they call it. They exchange no outcomes at the
// end: if a member fails before it has joined, the others wait for `timeout`.
absl::StatusOr<FormedGroup> FormGroupOf(const Party& party, Proposal proposal,
                                        const PlannedGroup& planned,
                                        const client::GroupFactory& factory,
                                        absl::Duration timeout);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_FORM_GROUPS_H_
