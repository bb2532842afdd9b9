// Where tokens go: from the experts that a router chose to rows for each rank, and from the rows
// that came to each expert's. Plain arithmetic on memory of the host.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROUTING_ROUTING_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROUTING_ROUTING_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/moe/routing/expert_placement.h"

namespace cohort::parallel {

// The rows that one rank sends. A token goes once to each rank that has any of its experts.
struct RoutePlan {
  client::Sizes rows;           // by rank: how many go to it
  std::vector<int64_t> tokens;  // of each row which token it is; by destination, then by token
};

// `ids` is contiguous, i32 or i64 [tokens, slots]: for each token its experts, -1 for none. Errors:
// INVALID_ARGUMENT names the token, the slot and the number, of an expert that there is not or that
// the token has twice.
absl::StatusOr<RoutePlan> PlanRoutes(const Tensor& ids, const ExpertPlacement& placement);

// Labels travel beside the rows: each has the token's number on its rank and, by slot, the expert
// and the weight. i32 [rows, LabelWidth(slots)].
inline constexpr int64_t LabelWidth(int64_t slots) { return 1 + 2 * slots; }
// Writes the labels of a plan's rows. Experts have their rank's local numbers; the experts of other
// ranks are -1, with a weight of 0. `weights` is contiguous, f32 [tokens, slots].
void WriteLabels(const RoutePlan& plan, const Tensor& ids, const Tensor& weights,
                 const ExpertPlacement& placement, const Tensor& labels);
// Writes the labels of all tokens, with global numbers of experts, for ranks that get every row.
void WriteLabels(const Tensor& ids, const Tensor& weights, const Tensor& labels);

// One expert's use of a received row.
struct ExpertRow {
  int64_t row = 0;
  int32_t slot = 0;
};

// The contents of received labels.
struct ReceivedLabels {
  std::vector<int64_t> tokens;       // of each row its token's number on the rank that sent it
  std::vector<int64_t> row_counts;   // by expert of this rank: the number of its rows
  std::vector<ExpertRow> by_expert;  // all of them, by expert, then by row
  std::vector<float> weights;        // of each of these
};

// Writes `ids`, i32 [rows, slots], experts as this rank numbers them, and `weights`, f32 alike. All
// contiguous. `all`: of labels of all tokens. Errors: INTERNAL (labels that no rank writes).
absl::StatusOr<ReceivedLabels> ReadLabels(const Tensor& labels, bool all,
                                          const ExpertPlacement& placement, int rank,
                                          const Tensor& ids, const Tensor& weights);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROUTING_ROUTING_H_
