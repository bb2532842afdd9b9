// Mixtures of experts, the sparing way: a token goes once to each rank that has any of its experts,
// and comes back as the weighted sum of their outputs.
//
//   COHORT_ASSIGN_OR_RETURN(const ExpertBatch batch, DispatchToExperts(group, tokens, placement));
//   ... for each expert e here, the rows of batch.by_expert with it: outputs ...
//   COHORT_ASSIGN_OR_RETURN(const Tensor result, CombineFromExperts(group, batch, outputs));
//
// All ranks of the group call both, ranks without tokens or experts included. Calls block. Inputs
// have any strides and are not changed. Results are contiguous and new from Group::Allocate, in the
// place of `hidden`. Sources: the all-to-all kernels behind `dispatch` and `combine` of
// DeviceCommunicatorBase and GroupCoordinator.
//
// Errors of all: INVALID_ARGUMENT, on all ranks, naming the rank and why, before anything has
// moved: a rank's tensors do not fit each other, the experts or the batch, or ranks mean different
// things. Those of Group.
#ifndef COHORT_CLIENT_PARALLEL_MOE_EXPERT_DISPATCH_H_
#define COHORT_CLIENT_PARALLEL_MOE_EXPERT_DISPATCH_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/moe/routing/expert_placement.h"
#include "client/parallel/moe/routing/routing.h"

namespace cohort::parallel {

// One rank's tokens. The types, the places and all extents but the first are the same on all ranks.
struct ExpertTokens {
  Tensor hidden;               // [n, H], or any shape of n rows; any type
  Tensor ids;                  // i32 or i64 [n, k]: experts, each once in a row; -1: an empty slot
  Tensor weights;              // f32 [n, k]
  std::vector<Tensor> extras;  // of n rows; they travel with hidden, such as its scales
};

enum class ExpertForm {
  kAuto,  // the form that moves less, by path_costs.h; on a GPU kGathered
  // Rows go to the ranks that have their experts. On a GPU, one copy for each row puts them in
  // order, and the way back is that of kGathered.
  kRouted,
  kGathered,  // every rank gets every row and returns its part of every token: see dispatch.h
};

struct ExpertDispatchOptions {
  ExpertForm form = ExpertForm::kAuto;
  // The timeout limits the whole call. A stream is refused, because ranks wait for each other's
  // counts.
  client::CallOptions call;
};

struct ExpertRoutes;

// The rows that a rank received: R rows, by source rank, then in the order of its tokens.
struct ExpertBatch {
  Tensor hidden;  // [R, H]
  // i32 [R, k]: this rank's numbers of its experts (ExpertPlacement::LocalOf). -1: the slot is
  // empty, or its expert is on another rank. With kGathered some rows have only -1.
  Tensor ids;
  Tensor weights;  // f32 [R, k]: 0 where the id is -1
  std::vector<Tensor> extras;
  ExpertForm form = ExpertForm::kRouted;       // the form that was used
  std::vector<int64_t> row_counts;             // by expert of this rank: the number of its rows
  std::vector<ExpertRow> by_expert;            // these rows: by expert, then by row
  std::shared_ptr<const ExpertRoutes> routes;  // the way back; any number of times
};

// Errors: also ids that are not experts, or twice in a row; and hidden, ids or weights of other
// shapes or types than those above.
absl::StatusOr<ExpertBatch> DispatchToExperts(client::Group& group, const ExpertTokens& tokens,
                                              const ExpertPlacement& placement,
                                              const ExpertDispatchOptions& options = {});

enum class WeightsBy {
  // `outputs` are [R, ...]: for each row the weighted sum over its experts here. With kGathered,
  // rows without an expert here are zeros.
  kExperts,
  // `outputs` are [A, ...]: for each of batch.by_expert the unweighted output of its expert.
  // Combine applies the weights. On the host.
  kCombine,
};

struct ExpertCombineOptions {
  WeightsBy weights = WeightsBy::kExperts;
  client::CallOptions call;  // as above
};

// The result is [n, ...], in the order of the given tokens: zeros for tokens without an expert.
// `outputs` have any floating type and rows of any shape, the same on all ranks. The sums run in
// f32 (f64 for f64), first over a rank's part of a token and then over the ranks' parts. They add
// in the same order each time and round once each, so the same inputs have the same bits. On a GPU,
// NCCL adds the parts in its own order. Errors: also `outputs` that are not floating, or with
// another number of rows; UNIMPLEMENTED (kCombine on a GPU: let experts apply the weights, or use
// dispatch.h; if only one rank asks for it, the others get INVALID_ARGUMENT).
absl::StatusOr<Tensor> CombineFromExperts(client::Group& group, const ExpertBatch& batch,
                                          const Tensor& outputs,
                                          const ExpertCombineOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_EXPERT_DISPATCH_H_
