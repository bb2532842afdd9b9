#include "client/parallel/layout/groups/create_layout.h"

#include <algorithm>
#include <numeric>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/parallel/layout/groups/form_groups.h"

namespace cohort::parallel {
namespace {

constexpr char kWhat[] = "the groups of a layout";

bool Contains(const std::vector<GroupKind>& kinds, const GroupKind& kind) {
  return std::find(kinds.begin(), kinds.end(), kind) != kinds.end();
}

std::string FormatKinds(const std::vector<GroupKind>& kinds) {
  return absl::StrJoin(kinds, ", ", [](std::string* text, const GroupKind& kind) {
    absl::StrAppend(text, NameOf(kind));
  });
}

absl::Status Check(const client::Group& world, const Layout& layout,
                   const CreateLayoutOptions& options) {
  if (!options.name.empty()) COHORT_RETURN_IF_ERROR(CheckBase(options.name));
  if (layout.first_rank() + layout.world_size() > world.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the layout has ranks ", layout.first_rank(),
                                                   "..",
                                                   layout.first_rank() + layout.world_size() - 1,
                                                   ", and the world ", world.size(), " in all"));
  }
  for (const auto* kinds : {&options.kinds, &options.separate}) {
    for (const GroupKind& kind : *kinds) {
      const absl::Status known = layout.Lists(kind).status();
      if (!known.ok()) return absl::InvalidArgumentError(known.message());
    }
  }
  return absl::OkStatus();
}

Proposal Propose(const client::Group& world, const Layout& layout,
                 const CreateLayoutOptions& options) {
  Proposal proposal;
  proposal.what = kWhat;
  proposal.parameters = {{"the name", options.name},
                         {"the timeout", absl::FormatDuration(options.timeout)},
                         {"the kinds", FormatKinds(options.kinds)},
                         {"the separate kinds", FormatKinds(options.separate)}};
  for (const GroupFamily& family : layout.families()) {
    proposal.parameters.push_back({absl::StrCat(family.separate ? "separate groups" : "groups",
                                                " of kind ", NameOf(family.kind)),
                                   FormatRankLists(family.lists)});
  }
  proposal.problem = Check(world, layout, options);
  return proposal;
}

// The groups to create, each once, and the kinds that each serves.
struct Plan {
  std::vector<PlannedGroup> groups;
  std::vector<std::vector<GroupKind>> kinds;  // by group
  std::vector<GroupKind> of_world;            // kinds with a group that is the whole world
};

Plan MakePlan(const client::Group& world, const Layout& layout,
              const CreateLayoutOptions& options) {
  RankList whole(static_cast<size_t>(world.size()));
  std::iota(whole.begin(), whole.end(), 0);
  Plan plan;
  std::map<RankList, size_t> known;  // where a list that may be shared is in the plan
  for (const GroupFamily& family : layout.families()) {
    if (!options.kinds.empty() && !Contains(options.kinds, family.kind)) continue;
    const bool separate = family.separate || Contains(options.separate, family.kind);
    const std::string base =
        absl::StrCat(options.name, options.name.empty() ? "" : ".", NameOf(family.kind));
    for (const RankList& list : family.lists) {
      if (!separate && list == whole) {
        plan.of_world.push_back(family.kind);
        continue;
      }
      size_t place = plan.groups.size();
      if (!separate) place = known.emplace(list, place).first->second;
      if (place == plan.groups.size()) {
        plan.groups.push_back({base, list});
        plan.kinds.emplace_back();
      }
      plan.kinds[place].push_back(family.kind);
    }
  }
  return plan;
}

}  // namespace

absl::StatusOr<Subgroup> ParallelGroups::Get(GroupKind kind) const {
  const auto made = made_.find(kind);
  if (made != made_.end()) return made->second;
  COHORT_ASSIGN_OR_RETURN(const RankLists lists, layout_.Lists(kind));
  if (chosen_.count(kind) == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("groups of kind ", NameOf(kind), " were not among those to make"));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("rank ", rank_, " is in no group of kind ", NameOf(kind)));
}

absl::StatusOr<ParallelGroups> CreateLayout(client::Group& world, const Layout& layout,
                                            const client::GroupFactory& factory,
                                            const CreateLayoutOptions& options) {
  Proposal proposal = Propose(world, layout, options);
  Plan plan;
  if (proposal.problem.ok()) plan = MakePlan(world, layout, options);
  COHORT_ASSIGN_OR_RETURN(
      std::vector<FormedGroup> formed,
      FormGroups(world, std::move(proposal), plan.groups, factory, options.timeout));
  ParallelGroups groups(layout, world.rank());
  for (const GroupFamily& family : layout.families()) {
    if (options.kinds.empty() || Contains(options.kinds, family.kind)) {
      groups.chosen_.insert(family.kind);
    }
  }
  for (const GroupKind& kind : plan.of_world) {
    COHORT_ASSIGN_OR_RETURN(RankList ranks, layout.ListOf(kind, world.rank()));
    // The caller owns the world, so this share frees nothing.
    const std::shared_ptr<client::Group> shared(&world, [](client::Group*) {});
    groups.made_[kind] = {shared, std::move(ranks), kind.role};
  }
  for (const FormedGroup& made : formed) {
    for (const GroupKind& kind : plan.kinds[made.number]) {
      groups.made_[kind] = {made.group, plan.groups[made.number].ranks, kind.role};
    }
  }
  return groups;
}

absl::Status FailCreateLayout(client::Group& world, const absl::Status& why,
                              absl::Duration timeout) {
  Proposal proposal;
  proposal.what = kWhat;
  proposal.problem = why;
  return FormGroups(world, std::move(proposal), {}, nullptr, timeout).status();
}

}  // namespace cohort::parallel
