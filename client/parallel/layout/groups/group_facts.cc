#include "client/parallel/layout/groups/group_facts.h"

#include <algorithm>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort::parallel {

absl::StatusOr<int> GlobalRank(const RankList& members, int rank_in_group) {
  if (rank_in_group < 0 || static_cast<size_t>(rank_in_group) >= members.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank_in_group, " is not in a group of ", members.size(), " ranks"));
  }
  return members[static_cast<size_t>(rank_in_group)];
}

absl::StatusOr<int> RankInGroup(const RankList& members, int global_rank) {
  const auto at = std::find(members.begin(), members.end(), global_rank);
  if (at == members.end()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", global_rank, " is not in the group [",
                                                   absl::StrJoin(members, ", "), "]"));
  }
  return static_cast<int>(at - members.begin());
}

absl::StatusOr<std::vector<bool>> SameHost(const client::Group& group, int source) {
  if (source < 0 || source >= group.size()) {
    return absl::InvalidArgumentError(absl::StrCat("source ", source, " is not one of the ",
                                                   group.size(), " ranks of group ", group.name()));
  }
  const std::vector<std::string>& hosts = group.hosts();
  std::vector<bool> same;
  for (const std::string& host : hosts) same.push_back(host == hosts[static_cast<size_t>(source)]);
  return same;
}

int NodeCount(const client::Group& group) {
  const std::set<std::string> hosts(group.hosts().begin(), group.hosts().end());
  return static_cast<int>(hosts.size());
}

std::vector<bool> SharesMemory(const client::Group& group) {
  std::vector<bool> shares;
  for (const std::string& path : group.paths()) {
    shares.push_back(path == "self" || path == "shared memory");
  }
  return shares;
}

}  // namespace cohort::parallel
