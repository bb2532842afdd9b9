// Groups that all ranks of a world have planned alike are made.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_FORM_GROUPS_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_FORM_GROUPS_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/collective/group_factory.h"
#include "client/parallel/layout/agreement.h"
#include "client/parallel/layout/grid.h"

namespace cohort::parallel {

struct PlannedGroup {
  std::string base;  // of its name
  RankList ranks;    // in the world; their places are the ranks in the group
};

struct FormedGroup {
  size_t number = 0;  // in the plan
  std::shared_ptr<client::Group> group;
};

// OK, or INVALID_ARGUMENT: `base` cannot be part of a group's name.
absl::Status CheckBase(absl::string_view base);

// All ranks of `world` call it; `proposal` says all that `plan` follows from, and may have a
// problem, in place of which all ranks hear it. Returns the groups that this rank is in, in the
// order of the plan, in which every rank makes its own: so none waits for one that waits for it,
// however they overlap. A rank that could not waits for the others as long as they may still be at
// work, and not longer: DEADLINE_EXCEEDED names those who are. A rank that dies is named at once by
// those who wait here, and by those in a group's making once that has timed out: factories have no
// way to be called back.
//
// A group is named WORLD@GENERATION/BASE:INDEX. The index is agreed upon, and larger than those of
// all earlier groups of that base: no name comes twice in the service.
absl::StatusOr<std::vector<FormedGroup>> FormGroups(client::Group& world, Proposal proposal,
                                                    const std::vector<PlannedGroup>& plan,
                                                    const client::GroupFactory& factory,
                                                    absl::Duration timeout);

// The same for one group of `party.members`, who alone call it. They do not hear of each other at
// the end: when a member fails before it has taken its seat, the others wait for `timeout`.
absl::StatusOr<FormedGroup> FormGroupOf(const Party& party, Proposal proposal,
                                        const PlannedGroup& planned,
                                        const client::GroupFactory& factory,
                                        absl::Duration timeout);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_FORM_GROUPS_H_
