// What CombineFromExperts has to know of a dispatch.
#ifndef COHORT_CLIENT_PARALLEL_MOE_EXPERT_ROUTES_H_
#define COHORT_CLIENT_PARALLEL_MOE_EXPERT_ROUTES_H_

#include <cstdint>
#include <vector>

#include "client/collective/group.h"
#include "client/parallel/moe/routing.h"

namespace cohort::parallel {

struct ExpertRoutes {
  int rank = 0;
  client::Sizes tokens;         // by rank: how many it brought
  RoutePlan sent;               // of this rank's
  client::Sizes received;       // by rank: how many rows came from it
  std::vector<int64_t> places;  // of each row that came: which of all ranks' tokens it is
  std::vector<float> weights;   // by ExpertBatch::by_expert
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_EXPERT_ROUTES_H_
