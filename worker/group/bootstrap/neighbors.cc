#include "worker/group/bootstrap/neighbors.h"

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"

namespace cohort::worker {

bool HaveOneFolder(const v1::RankInfo& a, const v1::RankInfo& b) {
  return !a.host_folder().empty() && a.host_folder() == b.host_folder();
}

bool AreNeighbors(const v1::RankInfo& a, const v1::RankInfo& b) {
  return a.host() == b.host() || HaveOneFolder(a, b);
}

std::vector<size_t> FirstRanks(const RankInfos& infos) {
  std::vector<size_t> firsts;
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    firsts.push_back(rank);
    if (IsUnshared(infos[rank])) continue;
    for (size_t other = 0; other < rank; ++other) {
      if (firsts[other] != other || IsUnshared(infos[other])) continue;
      if (!AreNeighbors(infos[other], infos[rank])) continue;
      firsts[rank] = other;
      break;
    }
  }
  return firsts;
}

std::string WhyNotOneHost(const RankInfos& infos, const std::vector<size_t>& firsts, size_t self) {
  RankSet ranks;
  bool is_one = true;
  for (size_t rank = 0; rank < infos.size(); ++rank) {
    if (infos[rank].machine() != infos[self].machine()) continue;
    ranks.Add(static_cast<int>(rank));
    is_one = is_one && firsts[rank] == firsts[self];
  }
  if (is_one) return "";
  return absl::StrCat("ranks ", ranks.ToString(),
                      " do not all share memory, though they are on one machine: ranks in "
                      "different network namespaces (containers, pods) need one user and a "
                      "folder that all of them mount, in COHORT_HOST_FOLDER");
}

}  // namespace cohort::worker
