// The groups of vLLM's initialize_model_parallel. Pure.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_VLLM_LAYOUT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_VLLM_LAYOUT_H_

#include <optional>

#include "absl/status/statusor.h"
#include "client/parallel/layout/layout.h"

namespace cohort::parallel {

struct VllmSizes {
  int tensor = 1;
  int pipeline = 1;
  int prefill_context = 1;
  int decode_context = 1;
  int data = 1;
  // Replicas that know nothing of each other. Absent: what the world leaves.
  std::optional<int> external_data;

  // How decode context counts through the ranks of tensor and context before it cuts them in runs:
  // as they are numbered, or through the context first.
  enum class DecodeOrder { kTensorFirst, kContextFirst };
  DecodeOrder decode_order = DecodeOrder::kTensorFirst;

  // For models with experts: kExpert; and kExpertLoadBalancing, the same ranks in groups apart.
  bool experts = false;
  bool expert_load_balancing = false;
};

// rank = (((e * data + d) * pipeline + p) * context + c) * tensor + t. Kinds: kWorld, kInnerWorld,
// kTensor, kDecodeContext, kContext (prefill), kPipeline, kData, and those of experts, whose
// members vary over t, then c, then d.
//
// Errors: those of Grid::Create; INVALID_ARGUMENT with the numbers (the world is no multiple of a
// replica; tensor * context no multiple of decode_context; load balancing without experts).
// Source: initialize_model_parallel, which takes the data size from elsewhere.
absl::StatusOr<Layout> VllmLayout(int world_size, const VllmSizes& sizes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_VLLM_LAYOUT_H_
