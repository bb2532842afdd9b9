#include "client/parallel/layout/groups/create_groups.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/parallel/layout/groups/form_groups.h"

namespace cohort::parallel {
namespace {

constexpr char kWhat[] = "groups of some of its ranks";

std::string FormatList(const RankList& list) {
  return absl::StrCat("[", absl::StrJoin(list, ", "), "]");
}

absl::Status CheckLists(int world_size, const RankLists& lists, bool overlap) {
  constexpr int kNone = -1;
  std::vector<int> list_of(static_cast<size_t>(world_size), kNone);
  for (size_t number = 0; number < lists.size(); ++number) {
    const RankList& list = lists[number];
    if (list.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("list ", number, " is empty"));
    }
    for (const int rank : list) {
      if (rank < 0 || rank >= world_size) {
        return absl::InvalidArgumentError(absl::StrCat("rank ", rank, " in the list ",
                                                       FormatList(list), " is not in a world of ",
                                                       world_size, " ranks"));
      }
      int& before = list_of[static_cast<size_t>(rank)];
      if (before == static_cast<int>(number)) {
        return absl::InvalidArgumentError(
            absl::StrCat("rank ", rank, " is twice in the list ", FormatList(list)));
      }
      if (before != kNone && !overlap) {
        return absl::InvalidArgumentError(absl::StrCat(
            "rank ", rank, " is in the lists ", FormatList(lists[static_cast<size_t>(before)]),
            " and ", FormatList(list), ", and overlap was not asked for"));
      }
      before = static_cast<int>(number);
    }
  }
  return absl::OkStatus();
}

absl::Status Check(const client::Group& world, const RankLists& lists, const std::string& name,
                   const CreateGroupsOptions& options) {
  COHORT_RETURN_IF_ERROR(CheckBase(name));
  return CheckLists(world.size(), lists, options.overlap);
}

}  // namespace

absl::StatusOr<std::vector<Subgroup>> CreateGroups(client::Group& world, const RankLists& lists,
                                                   Role role, const client::GroupFactory& factory,
                                                   const CreateGroupsOptions& options) {
  const std::string name = options.name.empty() ? "anonymous" : options.name;
  Proposal proposal;
  proposal.what = kWhat;
  proposal.parameters = {{"the name", name},
                         {"the role", std::string(NameOf(role))},
                         {"the lists", FormatRankLists(lists)},
                         {"overlap", options.overlap ? "true" : "false"},
                         {"the timeout", absl::FormatDuration(options.timeout)}};
  proposal.problem = Check(world, lists, name, options);
  std::vector<PlannedGroup> plan;
  for (const RankList& list : lists) plan.push_back({name, list});
  COHORT_ASSIGN_OR_RETURN(std::vector<FormedGroup> formed,
                          FormGroups(world, std::move(proposal), plan, factory, options.timeout));
  std::vector<Subgroup> groups;
  for (FormedGroup& made : formed) {
    groups.push_back({std::move(made.group), lists[made.number], role});
  }
  return groups;
}

absl::Status FailCreateGroups(client::Group& world, const absl::Status& why,
                              absl::Duration timeout) {
  Proposal proposal;
  proposal.what = kWhat;
  proposal.problem = why;
  return FormGroups(world, std::move(proposal), {}, nullptr, timeout).status();
}

}  // namespace cohort::parallel
