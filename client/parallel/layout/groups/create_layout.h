// Creates all groups of a layout that a rank is in, in one call.
//
//   COHORT_ASSIGN_OR_RETURN(const Layout layout, VllmLayout(world->size(), sizes));
//   COHORT_ASSIGN_OR_RETURN(const ParallelGroups groups, CreateLayout(*world, layout, factory));
//   COHORT_ASSIGN_OR_RETURN(const Subgroup tensor, groups.Get(Role::kTensor));
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_LAYOUT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_LAYOUT_H_

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"
#include "client/collective/group_factory.h"
#include "client/parallel/layout/groups/create_groups.h"
#include "client/parallel/layout/layout.h"
#include "client/parallel/layout/role.h"

namespace cohort::parallel {

struct CreateLayoutOptions {
  // Precedes the kind in the groups' names: NAME.tensor:0; empty: tensor:0.
  std::string name;
  // The kinds to create. Groups that cost memory or time can be left out. Empty: all kinds of the
  // layout.
  std::vector<GroupKind> kinds;
  // Kinds that do not share groups with other kinds, besides those that the layout keeps apart.
  std::vector<GroupKind> separate;
  // See CreateGroupsOptions.
  absl::Duration timeout = absl::Seconds(300);
};

// The groups that a rank is in, by kind. Kinds whose groups have the same members in the same order
// share one group, which orders the calls of all these kinds. The group of all ranks of the world
// is the world itself, which outlives this object.
class ParallelGroups {
 public:
  // Errors: FAILED_PRECONDITION (the kind is not in the layout, was not created, or this rank is in
  // none of its groups; says which).
  absl::StatusOr<Subgroup> Get(GroupKind kind) const;

  const Layout& layout() const { return layout_; }
  // OK, or FAILED_PRECONDITION, naming the difference: for several callers that each make sure that
  // the groups of their layout exist. Source: ensure_model_parallel_initialized, which compares
  // three sizes.
  absl::Status CheckSame(const Layout& layout) const { return layout_.CheckSame(layout); }

 private:
  friend absl::StatusOr<ParallelGroups> CreateLayout(client::Group& world, const Layout& layout,
                                                     const client::GroupFactory& factory,
                                                     const CreateLayoutOptions& options);
  ParallelGroups(Layout layout, int rank) : layout_(std::move(layout)), rank_(rank) {}

  Layout layout_;
  int rank_ = 0;
  std::map<GroupKind, Subgroup> made_;  // the groups that this rank is in
  std::set<GroupKind> chosen_;          // all kinds that were asked for
};

// All ranks of `world` call it, with the same layout and options; one exchange of a few bytes
// checks that before any group is created. Ranks of the layout are ranks of `world`, which may have
// more. Every rank creates its groups one by one, in the order in which the layout names them.
//
// Errors: as CreateGroups; INVALID_ARGUMENT also for a layout that is larger than the world, and
// for kinds that the layout does not have.
//
// Source: initialize_model_parallel of vLLM and Megatron, ParallelContext.init_parallel_groups
absl::StatusOr<ParallelGroups> CreateLayout(client::Group& world, const Layout& layout,
                                            const client::GroupFactory& factory,
                                            const CreateLayoutOptions& options = {});

// Fails CreateLayout on all ranks, because this rank cannot take part in it. This rank calls it in
// place of CreateLayout. All ranks get INVALID_ARGUMENT, which names this rank and `why`. Errors:
// also those of AllGatherObjects.
absl::Status FailCreateLayout(client::Group& world, const absl::Status& why,
                              absl::Duration timeout = absl::Seconds(300));

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_GROUPS_CREATE_LAYOUT_H_
