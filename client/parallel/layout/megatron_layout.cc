#include "client/parallel/layout/megatron_layout.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

struct DenseOrExpert {
  const char* what;
  AxisSize tensor;
  AxisSize inner;  // context or expert
  std::optional<int> data;
};

absl::StatusOr<Grid> MakeGrid(int world_size, const MegatronSizes& sizes,
                              const DenseOrExpert& part) {
  COHORT_ASSIGN_OR_RETURN(
      const int data,
      SizeInWorld(world_size, Axis::kData, part.data,
                  {part.tensor, part.inner, {Axis::kPipeline, sizes.pipeline}}, part.what));
  return Grid::Create(world_size,
                      {part.tensor,
                       part.inner,
                       {Axis::kData, data},
                       {Axis::kPipeline, sizes.pipeline}},
                      sizes.order, sizes.first_rank);
}

RankLists Sorted(RankLists lists) {
  for (RankList& list : lists) std::sort(list.begin(), list.end());
  std::sort(lists.begin(), lists.end());
  return lists;
}

// The members of every list at these places.
absl::Status AddStages(Role role, const std::optional<std::vector<int>>& asked,
                       std::vector<int> stages, Layout& layout) {
  if (asked.has_value()) stages = *asked;
  const int pipeline = layout.grid().size(Axis::kPipeline);
  std::vector<int> places;
  for (const int stage : stages) {
    if (stage < 0 || stage >= pipeline) {
      return absl::InvalidArgumentError(absl::StrCat("stage ", stage, " with groups of kind ",
                                                     NameOf(role), " is not one of the ", pipeline,
                                                     " stages of the pipeline"));
    }
    if (std::find(places.begin(), places.end(), stage) != places.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("stage ", stage, " is twice in those with groups of kind ", NameOf(role)));
    }
    places.push_back(stage);
  }
  COHORT_ASSIGN_OR_RETURN(const RankLists pipelines, layout.grid().Groups({Axis::kPipeline}));
  RankLists lists;
  if (!places.empty()) {
    for (const RankList& ranks : pipelines) {
      RankList& list = lists.emplace_back();
      for (const int place : places) list.push_back(ranks[static_cast<size_t>(place)]);
    }
  }
  return layout.Add({role, std::move(lists)});
}

absl::Status AddContextLevels(const std::vector<int>& levels, Layout& layout) {
  if (levels.empty()) return absl::OkStatus();
  const int context = layout.grid().size(Axis::kContext);
  int64_t product = 1;
  for (const int level : levels) product = std::min(product * std::max(level, 0), int64_t{1} << 31);
  if (product != context) {
    return absl::InvalidArgumentError(
        absl::StrCat("levels of context ", absl::StrJoin(levels, " x "), " are not cp ", context));
  }
  COHORT_ASSIGN_OR_RETURN(const RankLists contexts, layout.grid().Groups({Axis::kContext}));
  int stride = 1;
  for (size_t level = 0; level < levels.size(); ++level) {
    RankLists lists;
    for (const RankList& ranks : contexts) {
      for (int block = 0; block < context; block += stride * levels[level]) {
        for (int first = block; first < block + stride; ++first) {
          RankList& list = lists.emplace_back();
          for (int i = 0; i < levels[level]; ++i) {
            list.push_back(ranks[static_cast<size_t>(first + i * stride)]);
          }
        }
      }
    }
    stride *= levels[level];
    COHORT_RETURN_IF_ERROR(
        layout.Add({{Role::kContextLevel, static_cast<int>(level) + 1}, std::move(lists)}));
  }
  return absl::OkStatus();
}

absl::Status AddHybridContext(Layout& layout) {
  COHORT_ASSIGN_OR_RETURN(const RankLists lists, layout.Lists(Role::kDataContext));
  const auto ranks = static_cast<int>(lists.front().size());
  if ((ranks & (ranks - 1)) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("hybrid context: dp x cp is ", ranks, ", which is no power of two"));
  }
  for (int level = 1; 1 << level < ranks; ++level) {
    COHORT_ASSIGN_OR_RETURN(RankLists runs, Runs("hybrid context", lists, 1 << level));
    COHORT_RETURN_IF_ERROR(layout.Add({{Role::kHybridDataContext, level}, std::move(runs)}));
  }
  return absl::OkStatus();
}

// Each run of a list is one instance: returns the members at the same place of all runs.
RankLists Across(const RankLists& lists, int instances) {
  RankLists across;
  for (const RankList& list : lists) {
    const size_t run = list.size() / static_cast<size_t>(instances);
    for (size_t place = 0; place < run; ++place) {
      RankList& ranks = across.emplace_back();
      for (size_t i = place; i < list.size(); i += run) ranks.push_back(list[i]);
    }
  }
  return across;
}

absl::Status AddInstances(int instances, Layout& layout) {
  if (instances < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(instances, " instances of the optimizer are below 1"));
  }
  COHORT_ASSIGN_OR_RETURN(const RankLists dense, layout.Lists(Role::kDataContext));
  COHORT_ASSIGN_OR_RETURN(const RankLists expert, layout.Lists(Role::kExpertData));
  COHORT_ASSIGN_OR_RETURN(const int dense_run,
                          Divide("dp x cp in instances of the optimizer",
                                 static_cast<int>(dense.front().size()), instances));
  COHORT_ASSIGN_OR_RETURN(const int expert_run,
                          Divide("experts' dp in instances of the optimizer",
                                 static_cast<int>(expert.front().size()), instances));
  const RankLists between = Across(dense, instances);
  if (Sorted(between) != Sorted(Across(expert, instances))) {
    return absl::InvalidArgumentError(
        absl::StrCat("in the order ", FormatOrder(layout.grid().order()), " the ", instances,
                     " instances of the optimizer have other ranks for dense than for experts' "
                     "layers"));
  }
  // By instance, of the whole world.
  RankLists whole(static_cast<size_t>(instances));
  for (const RankList& list : between) {
    for (size_t i = 0; i < list.size(); ++i) whole[i].push_back(list[i]);
  }
  for (RankList& ranks : whole) std::sort(ranks.begin(), ranks.end());

  COHORT_ASSIGN_OR_RETURN(RankLists partial, Runs("dp x cp", dense, dense_run));
  COHORT_RETURN_IF_ERROR(layout.Add({Role::kPartialData, std::move(partial)}));
  COHORT_ASSIGN_OR_RETURN(partial, Runs("experts' dp", expert, expert_run));
  COHORT_RETURN_IF_ERROR(layout.Add({Role::kPartialExpertData, std::move(partial)}));
  COHORT_RETURN_IF_ERROR(layout.Add({Role::kBetweenInstances, between}));
  return layout.Add({Role::kOptimizerInstance, std::move(whole)});
}

absl::Status AddDense(Layout& layout) {
  const Axis t = Axis::kTensor;
  const Axis c = Axis::kContext;
  const Axis d = Axis::kData;
  const Axis p = Axis::kPipeline;
  const std::pair<Role, std::vector<Axis>> kinds[] = {
      {Role::kWorld, layout.grid().order()},
      {Role::kTensor, {t}},
      {Role::kPipeline, {p}},
      {Role::kData, {d}},
      {Role::kContext, {c}},
      {Role::kDataContext, {d, c}},
      {Role::kModel, {t, p}},
      {Role::kTensorData, {t, d}},
      {Role::kTensorDataContext, {t, d, c}},
      {Role::kTensorContext, {t, c}},
  };
  for (const auto& [role, axes] : kinds) COHORT_RETURN_IF_ERROR(layout.Add(role, axes));
  return absl::OkStatus();
}

absl::Status AddExperts(const Grid& grid, Layout& layout) {
  const Axis t = Axis::kTensor;
  const Axis e = Axis::kExpert;
  const std::pair<Role, std::vector<Axis>> kinds[] = {
      {Role::kExpert, {e}},
      {Role::kExpertTensor, {t}},
      {Role::kExpertTensorAll, {t, e}},
      {Role::kExpertModel, {t, e, Axis::kPipeline}},
      {Role::kExpertData, {Axis::kData}},
  };
  for (const auto& [role, axes] : kinds) {
    COHORT_ASSIGN_OR_RETURN(RankLists lists, grid.Groups(axes));
    COHORT_RETURN_IF_ERROR(layout.Add({role, std::move(lists)}));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Layout> MegatronLayout(int world_size, const MegatronSizes& sizes) {
  if (sizes.virtual_pipeline < 1 || (sizes.virtual_pipeline > 1 && sizes.pipeline < 2)) {
    return absl::InvalidArgumentError(absl::StrCat("a virtual pipeline of ", sizes.virtual_pipeline,
                                                   " with a pipeline of ", sizes.pipeline));
  }
  COHORT_ASSIGN_OR_RETURN(
      Grid dense,
      MakeGrid(world_size, sizes,
               {"dense layers",
                {Axis::kTensor, sizes.tensor},
                {Axis::kContext, sizes.context},
                sizes.data}));
  COHORT_ASSIGN_OR_RETURN(const Grid expert,
                          MakeGrid(world_size, sizes,
                                   {"experts' layers",
                                    {Axis::kTensor, sizes.expert_tensor.value_or(sizes.tensor)},
                                    {Axis::kExpert, sizes.expert},
                                    std::nullopt}));
  COHORT_ASSIGN_OR_RETURN(const RankLists pipelines, dense.Groups({Axis::kPipeline}));
  COHORT_ASSIGN_OR_RETURN(const RankLists expert_pipelines, expert.Groups({Axis::kPipeline}));
  for (const RankList& ranks : pipelines) {
    const auto& others = expert_pipelines;
    if (std::find(others.begin(), others.end(), ranks) != others.end()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "in the order ", FormatOrder(sizes.order),
        " dense and experts' layers have different pipelines: ", FormatRankLists({ranks}),
        " is one of dense layers alone"));
  }

  const int last = sizes.pipeline - 1;
  Layout layout(std::move(dense));
  COHORT_RETURN_IF_ERROR(AddDense(layout));
  COHORT_RETURN_IF_ERROR(AddExperts(expert, layout));
  COHORT_RETURN_IF_ERROR(AddStages(Role::kEmbedding, sizes.embedding_stages,
                                   last == 0 ? std::vector<int>{0} : std::vector<int>{0, last},
                                   layout));
  COHORT_RETURN_IF_ERROR(
      AddStages(Role::kPositionEmbedding, sizes.position_embedding_stages, {0}, layout));
  COHORT_RETURN_IF_ERROR(AddContextLevels(sizes.hierarchical_context, layout));
  if (sizes.hybrid_context) COHORT_RETURN_IF_ERROR(AddHybridContext(layout));
  COHORT_RETURN_IF_ERROR(AddInstances(sizes.optimizer_instances, layout));
  return layout;
}

}  // namespace cohort::parallel
