// Which rank has which experts.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROUTING_EXPERT_PLACEMENT_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROUTING_EXPERT_PLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace cohort::parallel {

// Made once, used by every step; the same on all ranks of a group, which compare it by its
// fingerprint. Each expert is on one rank. A rank may have none.
class ExpertPlacement {
 public:
  // Consecutive experts together, in the order of ranks; where they do not divide, the first ranks
  // have one more. Errors: INVALID_ARGUMENT (a negative number of experts or more than fit 32 bits,
  // or no ranks).
  static absl::StatusOr<ExpertPlacement> Blocks(int64_t experts, int ranks);
  // Dealt out: expert e is on rank e % ranks. Errors: as above. Source: vLLM's
  // determine_expert_map, as that of Blocks.
  static absl::StatusOr<ExpertPlacement> RoundRobin(int64_t experts, int ranks);
  // Expert e is on rank rank_of_expert[e]. Errors: as above, and INVALID_ARGUMENT names an expert
  // that is on no rank of 0..ranks-1.
  static absl::StatusOr<ExpertPlacement> Of(std::vector<int> rank_of_expert, int ranks);

  int64_t experts() const { return static_cast<int64_t>(rank_.size()); }
  int ranks() const { return static_cast<int>(counts_.size()); }
  // `expert` is in 0..experts()-1.
  int RankOf(int64_t expert) const { return rank_[static_cast<size_t>(expert)]; }
  // The expert's number among its rank's experts, from 0, in the order of their global numbers.
  int32_t LocalOf(int64_t expert) const { return local_[static_cast<size_t>(expert)]; }
  int64_t CountOf(int rank) const { return counts_[static_cast<size_t>(rank)]; }
  // The experts of a rank, in the order of their local numbers.
  std::vector<int64_t> ExpertsOf(int rank) const;

  // The same for the same placement in every process.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  ExpertPlacement(std::vector<int> rank_of_expert, int ranks);

  std::vector<int> rank_;
  std::vector<int32_t> local_;
  std::vector<int64_t> counts_;  // by rank
  uint64_t fingerprint_ = 0;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROUTING_EXPERT_PLACEMENT_H_
