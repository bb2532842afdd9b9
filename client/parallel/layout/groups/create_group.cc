#include "client/parallel/layout/groups/create_group.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/rank_set_name.h"
#include "base/status_macros.h"
#include "client/parallel/layout/groups/form_groups.h"

namespace cohort::parallel {
namespace {

absl::StatusOr<RankSet> ReadMembers(const client::Group& world, const RankList& members) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("create_group on rank ", world.rank(),
                                                   " of group ", world.name(), ": ", why));
  };
  RankSet set;
  for (const int rank : members) {
    if (rank < 0 || rank >= world.size()) {
      return refuse(absl::StrCat("member ", rank, " is not one of the ", world.size(), " ranks"));
    }
    if (!set.Add(rank)) return refuse(absl::StrCat("rank ", rank, " is a member twice"));
  }
  if (!set.Contains(world.rank())) return refuse("this rank is not a member");
  return set;
}

}  // namespace

absl::StatusOr<Subgroup> CreateGroup(client::Group& world, const RankList& members, Role role,
                                     const client::GroupFactory& factory,
                                     const CreateGroupOptions& options) {
  COHORT_ASSIGN_OR_RETURN(const RankSet set, ReadMembers(world, members));
  const std::string name = options.name.empty() ? "anonymous" : options.name;
  Proposal proposal;
  proposal.what = "a group of members alone";
  proposal.parameters = {{"the name", name},
                         {"the role", std::string(NameOf(role))},
                         {"the members", FormatRankLists({members})},
                         {"the timeout", absl::FormatDuration(options.timeout)}};
  proposal.problem = CheckBase(name);
  const PlannedGroup planned = {absl::StrCat(name, "@", NameOf(set)), members};
  COHORT_ASSIGN_OR_RETURN(FormedGroup formed,
                          FormGroupOf({world, set.ToVector()}, std::move(proposal), planned,
                                      factory, options.timeout));
  return Subgroup{std::move(formed.group), members, role};
}

}  // namespace cohort::parallel
