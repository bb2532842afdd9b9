// The calls of all members of a simulated group in a round. Each member computes them from the
// round's name and number.
#ifndef COHORT_COORDINATOR_CORE_TESTING_ROUND_SCRIPT_H_
#define COHORT_COORDINATOR_CORE_TESTING_ROUND_SCRIPT_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/core/testing/simulation_random.h"

namespace cohort::coordinator {

struct RoundScript {
  RoundKind kind = RoundKind::kBarrier;
  RankSet participants;
  bool all = true;
  int root = -1;
  VoteOp op = VoteOp::kSum;
};

inline bool Rooted(RoundKind kind) {
  return kind == RoundKind::kBroadcast || kind == RoundKind::kScatter;
}

inline RoundScript ScriptOf(const std::string& name, int64_t number, int world_size) {
  const uint64_t hash = Mix(Mix(name.size() + (name.empty() ? 0 : name[0])) ^ number);
  RoundScript script;
  static constexpr RoundKind kKinds[] = {
      RoundKind::kBarrier,   RoundKind::kBarrier, RoundKind::kBarrier,   RoundKind::kAllGather,
      RoundKind::kAllGather, RoundKind::kGather,  RoundKind::kBroadcast, RoundKind::kScatter,
      RoundKind::kVote,      RoundKind::kVote};
  script.kind = kKinds[hash % 10];
  script.all = (hash >> 8) % 4 != 0;
  script.participants = RankSet::All(world_size);
  if (!script.all) {
    for (int rank = 0; rank < world_size; ++rank) {
      if (Mix(hash ^ rank) % 2 == 0) script.participants.Remove(rank);
    }
    if (script.participants.empty()) script.participants.Add(static_cast<int>(hash % world_size));
  }
  if (Rooted(script.kind) || script.kind == RoundKind::kGather) {
    const std::vector<int> ranks = script.participants.ToVector();
    script.root = ranks[(hash >> 16) % ranks.size()];
  }
  static constexpr VoteOp kOps[] = {VoteOp::kAnd, VoteOp::kOr,  VoteOp::kSum,
                                    VoteOp::kMin, VoteOp::kMax, VoteOp::kEqual};
  script.op = kOps[(hash >> 24) % 6];
  return script;
}

// The value that `rank` brings to the round; for a scatter, the root's value for `rank`.
inline std::string RoundValue(const std::string& group, int64_t generation, const std::string& name,
                              int64_t number, int rank) {
  return absl::StrCat(group, "/", generation, "/", name, "/", number, "/", rank);
}
inline int64_t RoundVote(int64_t generation, int64_t number, int rank) {
  return static_cast<int64_t>(Mix(generation * 1000003 + number * 1009 + rank) % 3);
}

inline int64_t ExpectedVote(const RoundScript& script, int64_t generation, int64_t number) {
  bool all = true, any = false, first = true, equal = true;
  int64_t sum = 0, low = 0, high = 0, lowest_rank = 0;
  for (int rank : script.participants.ToVector()) {
    const int64_t vote = RoundVote(generation, number, rank);
    if (first) low = high = lowest_rank = vote;
    first = false;
    sum += vote;
    all = all && vote != 0;
    any = any || vote != 0;
    low = std::min(low, vote);
    high = std::max(high, vote);
    equal = equal && vote == lowest_rank;
  }
  switch (script.op) {
    case VoteOp::kAnd:
      return all ? 1 : 0;
    case VoteOp::kOr:
      return any ? 1 : 0;
    case VoteOp::kSum:
      return sum;
    case VoteOp::kMin:
      return low;
    case VoteOp::kMax:
      return high;
    case VoteOp::kEqual:
      return equal ? 1 : 0;
  }
  return 0;
}

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_ROUND_SCRIPT_H_
