// Which ranks share memory, as all ranks reckon it from that which each says of itself.
#ifndef COHORT_WORKER_GROUP_BOOTSTRAP_NEIGHBORS_H_
#define COHORT_WORKER_GROUP_BOOTSTRAP_NEIGHBORS_H_

#include <cstddef>
#include <string>
#include <vector>

#include "cohort/v1/rank_info.pb.h"

namespace cohort::worker {

// All ranks' infos, by rank.
using RankInfos = std::vector<v1::RankInfo>;

// Whether no rank of another process can map this rank's memory.
inline bool IsUnshared(const v1::RankInfo& info) { return info.heap_bytes() == 0; }

// Whether both see one host folder, and are processes of one user.
bool HaveOneFolder(const v1::RankInfo& a, const v1::RankInfo& b);

// Whether each can connect to the other one's local socket: by its name in one network namespace,
// or by a file in one host folder.
bool AreNeighbors(const v1::RankInfo& a, const v1::RankInfo& b);

// By rank: the rank that hands out the memory which it shares. That is its lowest neighbor that
// hands out memory, or itself. A rank whose memory is unshared is alone.
std::vector<size_t> FirstRanks(const RankInfos& infos);

// Why not all ranks on the machine of rank `self` share memory. Empty: they do.
std::string WhyNotOneHost(const RankInfos& infos, const std::vector<size_t>& firsts, size_t self);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_BOOTSTRAP_NEIGHBORS_H_
