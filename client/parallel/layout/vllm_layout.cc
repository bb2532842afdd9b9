#include "client/parallel/layout/vllm_layout.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

// Reorders ranks of tensor and context axes, numbered tensor first, to context first.
RankLists ContextFirst(const RankLists& lists, int tensor) {
  RankLists turned;
  for (const RankList& list : lists) {
    RankList& ranks = turned.emplace_back();
    const int context = static_cast<int>(list.size()) / tensor;
    for (int t = 0; t < tensor; ++t) {
      for (int c = 0; c < context; ++c) ranks.push_back(list[static_cast<size_t>(c * tensor + t)]);
    }
  }
  return turned;
}

}  // namespace

absl::StatusOr<Layout> VllmLayout(int world_size, const VllmSizes& sizes) {
  COHORT_ASSIGN_OR_RETURN(const int external_data,
                          SizeInWorld(world_size, Axis::kExternalData, sizes.external_data,
                                      {{Axis::kTensor, sizes.tensor},
                                       {Axis::kContext, sizes.prefill_context},
                                       {Axis::kPipeline, sizes.pipeline},
                                       {Axis::kData, sizes.data}},
                                      ""));
  COHORT_ASSIGN_OR_RETURN(Grid grid, Grid::Create(world_size,
                                                  {{Axis::kTensor, sizes.tensor},
                                                   {Axis::kContext, sizes.prefill_context},
                                                   {Axis::kPipeline, sizes.pipeline},
                                                   {Axis::kData, sizes.data},
                                                   {Axis::kExternalData, external_data}},
                                                  {Axis::kTensor, Axis::kContext, Axis::kPipeline,
                                                   Axis::kData, Axis::kExternalData}));
  if (sizes.expert_load_balancing && !sizes.experts) {
    return absl::InvalidArgumentError("expert load balancing without experts");
  }
  COHORT_ASSIGN_OR_RETURN(RankLists decode, grid.Groups({Axis::kTensor, Axis::kContext}));
  if (sizes.decode_order == VllmSizes::DecodeOrder::kContextFirst) {
    decode = ContextFirst(decode, sizes.tensor);
  }
  COHORT_ASSIGN_OR_RETURN(decode, Runs("ranks of tensor and context in parts of decode context",
                                       decode, sizes.decode_context));

  Layout layout(std::move(grid));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kWorld, layout.grid().order()));
  COHORT_RETURN_IF_ERROR(
      layout.Add(Role::kInnerWorld, {Axis::kTensor, Axis::kContext, Axis::kPipeline}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kTensor, {Axis::kTensor}));
  COHORT_RETURN_IF_ERROR(layout.Add({Role::kDecodeContext, std::move(decode)}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kContext, {Axis::kContext}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kPipeline, {Axis::kPipeline}));
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kData, {Axis::kData}));
  if (!sizes.experts) return layout;
  COHORT_RETURN_IF_ERROR(layout.Add(Role::kExpert, {Axis::kTensor, Axis::kContext, Axis::kData}));
  if (!sizes.expert_load_balancing) return layout;
  COHORT_ASSIGN_OR_RETURN(RankLists experts, layout.Lists(Role::kExpert));
  COHORT_RETURN_IF_ERROR(layout.Add({Role::kExpertLoadBalancing, std::move(experts), true}));
  return layout;
}

}  // namespace cohort::parallel
