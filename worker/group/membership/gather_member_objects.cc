#include "worker/group/membership/gather_member_objects.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/rank_set_name.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

absl::StatusOr<RankSet> ReadMembers(const client::ProcessGroup& member,
                                    absl::Span<const int> members) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", member.rank(), " of group ",
                                                   member.group(), ": objects of members: ", why));
  };
  RankSet set;
  int previous = -1;
  for (const int rank : members) {
    if (rank <= previous || rank >= member.world_size()) {
      return refuse(absl::StrCat("rank ", rank, " follows rank ", previous,
                                 "; expected ascending ranks below ", member.world_size()));
    }
    set.Add(rank);
    previous = rank;
  }
  if (!set.Contains(member.rank())) return refuse("this rank is no member");
  return set;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(client::ProcessGroup& member,
                                                            absl::Span<const int> members,
                                                            absl::string_view object,
                                                            absl::Duration timeout) {
  COHORT_ASSIGN_OR_RETURN(const RankSet set, ReadMembers(member, members));
  client::RoundOptions round;
  round.name = absl::StrCat("members/", NameOf(set));
  round.participants = set.ToRanges();
  round.timeout = timeout;
  round.catch_up = true;
  COHORT_ASSIGN_OR_RETURN(const client::ObjectList objects, member.AllGather(object, round));
  return objects.ToStrings();
}

}  // namespace cohort::worker
