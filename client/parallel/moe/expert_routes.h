// The facts of a dispatch that CombineFromExperts needs.
#ifndef COHORT_CLIENT_PARALLEL_MOE_EXPERT_ROUTES_H_
#define COHORT_CLIENT_PARALLEL_MOE_EXPERT_ROUTES_H_

#include <cstdint>
#include <vector>

#include "client/collective/group.h"
#include "client/parallel/moe/routing/routing.h"

namespace cohort::parallel {

struct ExpertRoutes {
  int rank = 0;
  client::Sizes tokens;         // by rank: its number of tokens
  RoutePlan sent;               // the rows of this rank's tokens
  client::Sizes received;       // by rank: the number of rows received from it
  std::vector<int64_t> places;  // of each received row: its token among those of all ranks
  std::vector<float> weights;   // by ExpertBatch::by_expert
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_EXPERT_ROUTES_H_
