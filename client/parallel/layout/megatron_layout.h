// The groups of Megatron's initialize_model_parallel. Pure.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_MEGATRON_LAYOUT_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_MEGATRON_LAYOUT_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "client/parallel/layout/layout.h"

namespace cohort::parallel {

// The data size of experts' layers is what the world leaves: world / (expert_tensor * expert *
// pipeline).
struct MegatronSizes {
  int tensor = 1;
  int pipeline = 1;
  int context = 1;
  // The data size of dense layers. Absent: world / (tensor * pipeline * context).
  std::optional<int> data;
  int expert = 1;
  std::optional<int> expert_tensor;  // absent: tensor
  // Stages that each rank of the pipeline has. Above 1 it wants a pipeline above 1.
  int virtual_pipeline = 1;

  AxisOrder order = {Axis::kTensor, Axis::kContext, Axis::kExpert, Axis::kData, Axis::kPipeline};
  int first_rank = 0;

  // Cuts context groups in levels, the innermost first; their product is `context`. Empty: none.
  std::vector<int> hierarchical_context;
  // kHybridDataContext, runs of 2, 4, ... of the ranks of kDataContext, below all of them.
  bool hybrid_context = false;
  // For the distributed optimizer: parts of the data and context ranks that each hold all its
  // state.
  int optimizer_instances = 1;
  // Stages of the pipeline that hold token embeddings, and stages that hold position embeddings.
  // Absent: the first and the last, and the first. Each stage counts once.
  std::optional<std::vector<int>> embedding_stages;
  std::optional<std::vector<int>> position_embedding_stages;
};

// Two grids over the same ranks. Dense layers: tensor, context, data, pipeline. Experts' layers:
// expert_tensor, expert, their data, pipeline; both in `order`, and both must give the same
// pipelines. Kinds:
//   dense    kWorld, kTensor, kPipeline, kData, kContext, kDataContext, kModel, kTensorData,
//            kTensorDataContext, kTensorContext
//   experts  kExpert, kExpertTensor, kExpertTensorAll, kExpertModel, kExpertData
//   stages   kEmbedding, kPositionEmbedding: ranks of other stages are in none
//   levels   {kContextLevel, 1...}: neighbours; every a-th of a run of a * b; ...
//   hybrid   {kHybridDataContext, 1...}: runs of 2, 4, ...
//   instances  kPartialData, kPartialExpertData within one; kBetweenInstances, kOptimizerInstance;
//            both with one instance, too
//
// Errors: those of Grid::Create; INVALID_ARGUMENT with the numbers (the world is no multiple of the
// sizes, or not their product with data; the pipelines differ; levels do not multiply to context;
// data and context are no multiple of the instances, which also have to be the same ranks for dense
// and experts' layers; no power of two with hybrid context; a stage that the pipeline lacks, or
// twice).
// Source: parallel_state.initialize_model_parallel, RankGenerator
absl::StatusOr<Layout> MegatronLayout(int world_size, const MegatronSizes& sizes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_MEGATRON_LAYOUT_H_
