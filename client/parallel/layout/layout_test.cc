// Groups written by hand from the definitions, and rules of all layouts. One file, though long, so
// that the three frameworks' layouts stand side by side.
#include "client/parallel/layout/layout.h"

#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "client/parallel/layout/colossalai_layout.h"
#include "client/parallel/layout/megatron_layout.h"
#include "client/parallel/layout/vllm_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Layout Get(absl::StatusOr<Layout> layout) {
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

RankLists ListsOf(const Layout& layout, GroupKind kind) {
  absl::StatusOr<RankLists> lists = layout.Lists(kind);
  EXPECT_TRUE(lists.ok()) << lists.status();
  return *std::move(lists);
}

void ExpectRefused(const absl::Status& status, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(word));
  }
}

// Checks that each rank is in one group of every kind, except for kinds with only some ranks.
void ExpectPartitions(const Layout& layout) {
  for (const GroupFamily& family : layout.families()) {
    if (family.kind.role == Role::kEmbedding || family.kind.role == Role::kPositionEmbedding) {
      continue;
    }
    RankList all;
    for (const RankList& list : family.lists) all.insert(all.end(), list.begin(), list.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all, ListsOf(layout, Role::kWorld).front()) << NameOf(family.kind);
  }
}

TEST(LayoutTest, FindsEachKindByItsName) {
  MegatronSizes sizes;
  sizes.context = 4;
  sizes.hierarchical_context = {2, 2};
  sizes.hybrid_context = true;
  const Layout layout = Get(MegatronLayout(8, sizes));
  EXPECT_TRUE(layout.Has({Role::kContextLevel, 2}));
  for (const GroupFamily& family : layout.families()) {
    EXPECT_EQ(FindGroupKind(NameOf(family.kind)), family.kind) << NameOf(family.kind);
  }
  EXPECT_EQ(FindGroupKind("tensor-2.5d-xz"), GroupKind(Role::kTensor2p5dXZ));
  for (const char* const name : {"", "tensors", "tensor-", "tensor-0", "tensor-02", "tensor-x"}) {
    EXPECT_EQ(FindGroupKind(name), std::nullopt) << name;
  }
}

TEST(LayoutTest, NamesMissingRolesAndRanks) {
  Layout layout =
      Get(MakeLayout(4, {{Axis::kTensor, 2}, {Axis::kData, 2}}, {Axis::kTensor, Axis::kData}));
  EXPECT_EQ(layout.Lists(Role::kEmbedding).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(layout.Lists({Role::kContextLevel, 2}).status().message()),
              AllOf(HasSubstr("context-level-2"), HasSubstr("it has world, tensor")));
  EXPECT_THAT(*layout.ListOf(Role::kData, 3), ElementsAre(1, 3));
  ExpectRefused(layout.ListOf(Role::kData, 4).status(), {"rank 4", "0..3"});

  ExpectRefused(layout.Add(Role::kTensor, {Axis::kTensor}), {"tensor already"});
  ExpectRefused(layout.Add({Role::kEmbedding, {{0, 1}, {1}}}), {"rank 1 is twice", "embedding"});
  ExpectRefused(layout.Add({Role::kEmbedding, {{0}, {}}}), {"no ranks"});
  ExpectRefused(layout.Add({Role::kEmbedding, {{4}}}), {"rank 4", "0..3"});
  ASSERT_TRUE(layout.Add({Role::kEmbedding, {{0, 2}}}).ok());
  EXPECT_THAT(*layout.ListOf(Role::kEmbedding, 1), IsEmpty());
}

TEST(LayoutTest, ComparesAll) {
  VllmSizes sizes;
  sizes.tensor = 4;
  const Layout one = Get(VllmLayout(8, sizes));
  EXPECT_TRUE(one.CheckSame(Get(VllmLayout(8, sizes))).ok());
  // Differences that vLLM's ensure_model_parallel_initialized does not see.
  VllmSizes decode = sizes;
  decode.decode_context = 2;
  absl::Status differs = one.CheckSame(Get(VllmLayout(8, decode)));
  EXPECT_EQ(differs.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(differs.message()), HasSubstr("decode-context"));
  VllmSizes data = sizes;
  data.data = 2;
  differs = one.CheckSame(Get(VllmLayout(8, data)));
  EXPECT_THAT(std::string(differs.message()), AllOf(HasSubstr("dp 1"), HasSubstr("dp 2")));
  VllmSizes experts = sizes;
  experts.experts = true;
  EXPECT_FALSE(one.CheckSame(Get(VllmLayout(8, experts))).ok());
}

TEST(VllmLayoutTest, IsAsDefined) {
  VllmSizes sizes;
  sizes.tensor = 2;
  sizes.pipeline = 2;
  sizes.data = 2;
  sizes.experts = true;
  sizes.expert_load_balancing = true;
  const Layout layout = Get(VllmLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, Role::kTensor),
              ElementsAre(RankList{0, 1}, RankList{2, 3}, RankList{4, 5}, RankList{6, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kPipeline),
              ElementsAre(RankList{0, 2}, RankList{1, 3}, RankList{4, 6}, RankList{5, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kData),
              ElementsAre(RankList{0, 4}, RankList{1, 5}, RankList{2, 6}, RankList{3, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kExpert),
              ElementsAre(RankList{0, 1, 4, 5}, RankList{2, 3, 6, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kInnerWorld),
              ElementsAre(RankList{0, 1, 2, 3}, RankList{4, 5, 6, 7}));
  EXPECT_EQ(ListsOf(layout, Role::kExpertLoadBalancing), ListsOf(layout, Role::kExpert));
  EXPECT_TRUE(layout.families().back().separate);
}

TEST(VllmLayoutTest, ContextAndExternalData) {
  VllmSizes sizes;
  sizes.tensor = 2;
  sizes.prefill_context = 2;
  sizes.decode_context = 2;
  const Layout runs = Get(VllmLayout(8, sizes));
  ExpectPartitions(runs);
  EXPECT_EQ(runs.grid().size(Axis::kExternalData), 2);
  EXPECT_THAT(ListsOf(runs, Role::kContext),
              ElementsAre(RankList{0, 2}, RankList{1, 3}, RankList{4, 6}, RankList{5, 7}));
  EXPECT_THAT(ListsOf(runs, Role::kDecodeContext),
              ElementsAre(RankList{0, 1}, RankList{2, 3}, RankList{4, 5}, RankList{6, 7}));
  EXPECT_THAT(ListsOf(runs, Role::kInnerWorld),
              ElementsAre(RankList{0, 1, 2, 3}, RankList{4, 5, 6, 7}));

  sizes.decode_order = VllmSizes::DecodeOrder::kContextFirst;
  const Layout context_first = Get(VllmLayout(8, sizes));
  EXPECT_THAT(ListsOf(context_first, Role::kDecodeContext),
              ElementsAre(RankList{0, 2}, RankList{1, 3}, RankList{4, 6}, RankList{5, 7}));
  sizes.decode_context = 4;
  EXPECT_THAT(ListsOf(Get(VllmLayout(8, sizes)), Role::kDecodeContext),
              ElementsAre(RankList{0, 2, 1, 3}, RankList{4, 6, 5, 7}));
}

TEST(VllmLayoutTest, RefusesWithNumbers) {
  VllmSizes sizes;
  sizes.tensor = 3;
  ExpectRefused(VllmLayout(8, sizes).status(), {"8 ranks", "tp 3"});
  sizes.tensor = 2;
  sizes.external_data = 2;
  ExpectRefused(VllmLayout(8, sizes).status(), {"8 ranks", "external-dp 2", "= 4; external-dp"});
  sizes.external_data.reset();
  sizes.decode_context = 4;
  ExpectRefused(VllmLayout(8, sizes).status(), {"decode context", "2", "4"});
  sizes.decode_context = 0;
  ExpectRefused(VllmLayout(8, sizes).status(), {"decode context", "2", "0"});
  sizes = {};
  sizes.pipeline = -1;
  ExpectRefused(VllmLayout(8, sizes).status(), {"pp", "-1"});
  sizes = {};
  sizes.expert_load_balancing = true;
  ExpectRefused(VllmLayout(8, sizes).status(), {"without experts"});
}

TEST(MegatronLayoutTest, DenseIsAsDefined) {
  MegatronSizes sizes;
  sizes.tensor = 2;
  sizes.pipeline = 2;
  const Layout layout = Get(MegatronLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, Role::kTensor),
              ElementsAre(RankList{0, 1}, RankList{2, 3}, RankList{4, 5}, RankList{6, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kData),
              ElementsAre(RankList{0, 2}, RankList{1, 3}, RankList{4, 6}, RankList{5, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kPipeline),
              ElementsAre(RankList{0, 4}, RankList{1, 5}, RankList{2, 6}, RankList{3, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kModel),
              ElementsAre(RankList{0, 1, 4, 5}, RankList{2, 3, 6, 7}));
  EXPECT_EQ(ListsOf(layout, Role::kEmbedding), ListsOf(layout, Role::kPipeline));
  EXPECT_THAT(ListsOf(layout, Role::kPositionEmbedding),
              ElementsAre(RankList{0}, RankList{1}, RankList{2}, RankList{3}));
  EXPECT_EQ(ListsOf(layout, Role::kPartialData), ListsOf(layout, Role::kDataContext));
  EXPECT_EQ(ListsOf(layout, Role::kOptimizerInstance), ListsOf(layout, Role::kWorld));
}

TEST(MegatronLayoutTest, EmbeddingsOfMiddleStages) {
  MegatronSizes sizes;
  sizes.pipeline = 4;
  sizes.virtual_pipeline = 2;
  const Layout ends = Get(MegatronLayout(4, sizes));
  EXPECT_THAT(ListsOf(ends, Role::kEmbedding), ElementsAre(RankList{0, 3}));
  EXPECT_THAT(*ends.ListOf(Role::kEmbedding, 1), IsEmpty());
  sizes.embedding_stages = {0, 2, 3};
  sizes.position_embedding_stages = {0, 2};
  const Layout more = Get(MegatronLayout(4, sizes));
  EXPECT_THAT(ListsOf(more, Role::kEmbedding), ElementsAre(RankList{0, 2, 3}));
  EXPECT_THAT(ListsOf(more, Role::kPositionEmbedding), ElementsAre(RankList{0, 2}));
  sizes.embedding_stages = {0, 4};
  ExpectRefused(MegatronLayout(4, sizes).status(), {"stage 4", "embedding", "4"});
  sizes.embedding_stages = {1, 1};
  ExpectRefused(MegatronLayout(4, sizes).status(), {"stage 1 is twice"});
}

TEST(MegatronLayoutTest, ExpertsHaveAGridOfTheirOwn) {
  MegatronSizes sizes;
  sizes.tensor = 2;
  sizes.pipeline = 2;
  sizes.context = 2;
  sizes.expert = 4;
  sizes.expert_tensor = 1;
  sizes.first_rank = 100;
  const Layout layout = Get(MegatronLayout(16, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, Role::kContext).front(), ElementsAre(100, 102));
  EXPECT_THAT(ListsOf(layout, Role::kDataContext).front(), ElementsAre(100, 102, 104, 106));
  EXPECT_THAT(ListsOf(layout, Role::kExpert).front(), ElementsAre(100, 101, 102, 103));
  EXPECT_THAT(ListsOf(layout, Role::kExpertData).front(), ElementsAre(100, 104));
  EXPECT_THAT(ListsOf(layout, Role::kExpertModel).front(),
              ElementsAre(100, 101, 102, 103, 108, 109, 110, 111));
  EXPECT_THAT(ListsOf(layout, Role::kExpertTensor).front(), ElementsAre(100));
  // A rank's expert group and expert data group have only that rank in common, and so on.
  for (const RankList& expert : ListsOf(layout, Role::kExpert)) {
    for (const RankList& data : ListsOf(layout, Role::kExpertData)) {
      RankList common;
      std::set_intersection(expert.begin(), expert.end(), data.begin(), data.end(),
                            std::back_inserter(common));
      EXPECT_LE(common.size(), 1u);
    }
  }

  // With the pipeline inside, the two grids disagree about it.
  sizes.order = {Axis::kTensor, Axis::kPipeline, Axis::kContext, Axis::kExpert, Axis::kData};
  ExpectRefused(MegatronLayout(16, sizes).status(), {"tp-pp-cp-ep-dp", "pipelines"});
}

TEST(MegatronLayoutTest, LevelsOfContext) {
  MegatronSizes sizes;
  sizes.context = 8;
  sizes.hierarchical_context = {2, 2, 2};
  sizes.hybrid_context = true;
  const Layout layout = Get(MegatronLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, {Role::kContextLevel, 1}),
              ElementsAre(RankList{0, 1}, RankList{2, 3}, RankList{4, 5}, RankList{6, 7}));
  EXPECT_THAT(ListsOf(layout, {Role::kContextLevel, 2}),
              ElementsAre(RankList{0, 2}, RankList{1, 3}, RankList{4, 6}, RankList{5, 7}));
  EXPECT_THAT(ListsOf(layout, {Role::kContextLevel, 3}),
              ElementsAre(RankList{0, 4}, RankList{1, 5}, RankList{2, 6}, RankList{3, 7}));
  EXPECT_THAT(ListsOf(layout, {Role::kHybridDataContext, 2}),
              ElementsAre(RankList{0, 1, 2, 3}, RankList{4, 5, 6, 7}));
  EXPECT_FALSE(layout.Has({Role::kHybridDataContext, 3}));

  sizes.hierarchical_context = {2, 2};
  ExpectRefused(MegatronLayout(8, sizes).status(), {"2 x 2", "cp 8"});
  sizes.hierarchical_context = {-2, -4};
  ExpectRefused(MegatronLayout(8, sizes).status(), {"cp 8"});
  sizes.hierarchical_context = {};
  sizes.context = 3;
  ExpectRefused(MegatronLayout(3, sizes).status(), {"is 3", "power of two"});
}

TEST(MegatronLayoutTest, InstancesOfTheOptimizer) {
  MegatronSizes sizes;
  sizes.tensor = 2;
  sizes.expert = 2;
  sizes.optimizer_instances = 2;
  const Layout layout = Get(MegatronLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, Role::kPartialData),
              ElementsAre(RankList{0, 2}, RankList{4, 6}, RankList{1, 3}, RankList{5, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kBetweenInstances),
              ElementsAre(RankList{0, 4}, RankList{2, 6}, RankList{1, 5}, RankList{3, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kOptimizerInstance),
              ElementsAre(RankList{0, 1, 2, 3}, RankList{4, 5, 6, 7}));
  EXPECT_THAT(ListsOf(layout, Role::kPartialExpertData).front(), ElementsAre(0));
  sizes.optimizer_instances = 3;
  ExpectRefused(MegatronLayout(8, sizes).status(), {"4", "3"});
  sizes.optimizer_instances = 0;
  ExpectRefused(MegatronLayout(8, sizes).status(), {"0 instances"});
}

TEST(MegatronLayoutTest, RefusesWithNumbers) {
  MegatronSizes sizes;
  sizes.tensor = 3;
  ExpectRefused(MegatronLayout(8, sizes).status(), {"8 ranks", "tp 3", "dense"});
  sizes = {};
  sizes.expert = 3;
  ExpectRefused(MegatronLayout(8, sizes).status(), {"8 ranks", "ep 3", "experts"});
  sizes = {};
  sizes.virtual_pipeline = 2;
  ExpectRefused(MegatronLayout(8, sizes).status(), {"virtual pipeline of 2", "pipeline of 1"});
  sizes = {};
  sizes.context = 2;
  sizes.order = {Axis::kTensor, Axis::kData, Axis::kPipeline};
  ExpectRefused(MegatronLayout(8, sizes).status(), {"cp", "tp-dp-pp"});
}

TEST(MegatronLayoutTest, DataIsWhatTheWorldLeavesOrChecked) {
  MegatronSizes sizes;
  sizes.tensor = 2;
  sizes.context = 2;
  const Layout derived = Get(MegatronLayout(16, sizes));
  EXPECT_EQ(derived.grid().size(Axis::kData), 4);
  sizes.data = 4;
  EXPECT_TRUE(derived.CheckSame(Get(MegatronLayout(16, sizes))).ok());
  sizes.data = 3;
  ExpectRefused(MegatronLayout(16, sizes).status(),
                {"the world has 16 ranks",
                 "tp 2 x cp 2 x pp 1 x dp 3 = 12 of dense layers; dp may be left out"});
  sizes.data = 0;
  ExpectRefused(MegatronLayout(16, sizes).status(), {"dp 0 of dense layers is below 1"});
  sizes.data.reset();
  ExpectRefused(MegatronLayout(18, sizes).status(),
                {"the world has 18 ranks", "no multiple of tp 2 x cp 2 x pp 1 = 4"});
}

TEST(ColossalaiLayoutTest, DataIsWhatTheWorldLeavesOrChecked) {
  ColossalaiSizes sizes;
  sizes.tensor = 2;
  sizes.pipeline = 2;
  sizes.mode = TensorMode::k1D;
  sizes.expert = 2;
  const Layout derived = Get(ColossalaiLayout(16, sizes));
  EXPECT_EQ(ListsOf(derived, Role::kData).front().size(), 4u);
  EXPECT_EQ(ListsOf(derived, Role::kExpert).front().size(), 2u);
  sizes.data = 4;
  EXPECT_TRUE(derived.CheckSame(Get(ColossalaiLayout(16, sizes))).ok());
  sizes.data = 3;
  ExpectRefused(ColossalaiLayout(16, sizes).status(),
                {"the world has 16 ranks", "tp 2 x pp 2 x dp 3 = 12; dp may be left out"});
  sizes.data = -1;
  ExpectRefused(ColossalaiLayout(16, sizes).status(), {"dp -1 is below 1"});
  sizes.data.reset();
  ExpectRefused(ColossalaiLayout(18, sizes).status(),
                {"the world has 18 ranks", "no multiple of tp 2 x pp 2 = 4"});
}

TEST(ColossalaiLayoutTest, AgreesWithVllmAndNotWithMegatron) {
  ColossalaiSizes sizes;
  sizes.tensor = 2;
  sizes.pipeline = 2;
  sizes.data = 2;
  sizes.mode = TensorMode::k1D;
  const Layout layout = Get(ColossalaiLayout(8, sizes));
  ExpectPartitions(layout);
  VllmSizes vllm;
  vllm.tensor = vllm.pipeline = vllm.data = 2;
  MegatronSizes megatron;
  megatron.tensor = megatron.pipeline = 2;
  for (const Role role : {Role::kTensor, Role::kPipeline, Role::kData}) {
    EXPECT_EQ(ListsOf(layout, role), ListsOf(Get(VllmLayout(8, vllm)), role)) << NameOf(role);
  }
  EXPECT_EQ(ListsOf(layout, ParallelMode::kData),
            ListsOf(Get(MegatronLayout(8, megatron)), Role::kPipeline));
  EXPECT_THAT(ListsOf(layout, ParallelMode::kModel),
              ElementsAre(RankList{0, 1, 2, 3}, RankList{4, 5, 6, 7}));
  EXPECT_EQ(ListsOf(layout, ParallelMode::k1D), ListsOf(layout, ParallelMode::kTensor));
}

TEST(ColossalaiLayoutTest, TwoDimensions) {
  ColossalaiSizes sizes;
  sizes.tensor = 4;
  sizes.data = 2;
  sizes.mode = TensorMode::k2D;
  const Layout layout = Get(ColossalaiLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, ParallelMode::k2DRow),
              ElementsAre(RankList{0, 1}, RankList{2, 3}, RankList{4, 5}, RankList{6, 7}));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k2DCol),
              ElementsAre(RankList{0, 2}, RankList{1, 3}, RankList{4, 6}, RankList{5, 7}));
  sizes.tensor = 8;
  ExpectRefused(ColossalaiLayout(16, sizes).status(), {"8", "no square"});
}

TEST(ColossalaiLayoutTest, TwoAndAHalfDimensions) {
  ColossalaiSizes sizes;
  sizes.tensor = 8;
  sizes.mode = TensorMode::k2P5D;
  sizes.depth = 2;
  const Layout layout = Get(ColossalaiLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, ParallelMode::k2P5DRow).front(), ElementsAre(0, 1));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k2P5DCol).front(), ElementsAre(0, 2));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k2P5DDep).front(), ElementsAre(0, 4));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k2P5DXZ),
              ElementsAre(RankList{0, 2, 4, 6}, RankList{1, 3, 5, 7}));
  sizes.depth = 3;
  ExpectRefused(ColossalaiLayout(8, sizes).status(), {"8", "depth 3"});
  sizes.depth = 0;
  ExpectRefused(ColossalaiLayout(8, sizes).status(), {"depth 0"});
  sizes.depth = 2;
  sizes.mode = TensorMode::k3D;
  ExpectRefused(ColossalaiLayout(8, sizes).status(), {"depth 2"});
}

TEST(ColossalaiLayoutTest, ThreeDimensions) {
  ColossalaiSizes sizes;
  sizes.tensor = 8;
  sizes.mode = TensorMode::k3D;
  const Layout layout = Get(ColossalaiLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, ParallelMode::k3DInput).front(), ElementsAre(0, 2));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k3DWeight).front(), ElementsAre(0, 1));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k3DOutput).front(), ElementsAre(0, 4));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k3DInputXWeight).front(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ListsOf(layout, ParallelMode::k3DOutputXWeight).front(), ElementsAre(0, 1, 4, 5));
  sizes.tensor = 4;
  ExpectRefused(ColossalaiLayout(4, sizes).status(), {"4", "no cube"});
}

TEST(ColossalaiLayoutTest, SequenceDoesNotMixStages) {
  ColossalaiSizes sizes;
  sizes.tensor = 2;
  sizes.pipeline = 2;
  sizes.data = 2;
  sizes.mode = TensorMode::kSequence;
  const Layout layout = Get(ColossalaiLayout(8, sizes));
  ExpectPartitions(layout);
  EXPECT_EQ(ListsOf(layout, ParallelMode::kSequence), ListsOf(layout, ParallelMode::kTensor));
  EXPECT_THAT(ListsOf(layout, ParallelMode::kSequenceDp),
              ElementsAre(RankList{0, 1, 4, 5}, RankList{2, 3, 6, 7}));
}

TEST(ColossalaiLayoutTest, ExpertsAndErrors) {
  ColossalaiSizes sizes;
  sizes.data = 4;
  sizes.expert = 2;
  const Layout layout = Get(ColossalaiLayout(4, sizes));
  ExpectPartitions(layout);
  EXPECT_THAT(ListsOf(layout, ParallelMode::kData), ElementsAre(RankList{0, 1, 2, 3}));
  EXPECT_THAT(ListsOf(layout, ParallelMode::kMoeModel),
              ElementsAre(RankList{0, 1}, RankList{2, 3}));
  EXPECT_THAT(ListsOf(layout, ParallelMode::kMoeData), ElementsAre(RankList{0, 2}, RankList{1, 3}));
  sizes.expert = 3;
  ExpectRefused(ColossalaiLayout(4, sizes).status(), {"4", "3"});
  sizes = {};
  sizes.tensor = 4;
  ExpectRefused(ColossalaiLayout(4, sizes).status(), {"4", "without a tensor mode"});
}

// The same rank numbers from the definitions, by nested loops over all coordinates.
TEST(LayoutTest, PresetsCountAsTheirDefinitionsSay) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 50; ++round) {
    const auto size = [&] { return std::uniform_int_distribution<int>(1, 3)(random); };
    const int t_size = size(), c_size = size(), p_size = size(), d_size = size(), e_size = size();
    VllmSizes vllm;
    vllm.tensor = t_size;
    vllm.prefill_context = c_size;
    vllm.pipeline = p_size;
    vllm.data = d_size;
    MegatronSizes megatron;
    megatron.tensor = t_size;
    megatron.context = c_size;
    megatron.pipeline = p_size;
    const int replica = t_size * c_size * p_size * d_size;
    const Layout of_vllm = Get(VllmLayout(replica * e_size, vllm));
    const Layout of_megatron = Get(MegatronLayout(replica, megatron));
    ExpectPartitions(of_vllm);
    ExpectPartitions(of_megatron);
    for (int e = 0; e < e_size; ++e) {
      for (int d = 0; d < d_size; ++d) {
        for (int p = 0; p < p_size; ++p) {
          for (int c = 0; c < c_size; ++c) {
            for (int t = 0; t < t_size; ++t) {
              const int rank = (((e * d_size + d) * p_size + p) * c_size + c) * t_size + t;
              const RankList data = *of_vllm.ListOf(Role::kData, rank);
              ASSERT_EQ(data[static_cast<size_t>(d)], rank);
              ASSERT_EQ((*of_vllm.ListOf(Role::kPipeline, rank))[static_cast<size_t>(p)], rank);
              ASSERT_EQ((*of_vllm.ListOf(Role::kContext, rank))[static_cast<size_t>(c)], rank);
              ASSERT_EQ((*of_vllm.ListOf(Role::kTensor, rank))[static_cast<size_t>(t)], rank);
              const int dense = ((p * d_size + d) * c_size + c) * t_size + t;
              ASSERT_EQ((*of_megatron.ListOf(Role::kData, dense))[static_cast<size_t>(d)], dense);
              ASSERT_EQ((*of_megatron.ListOf(Role::kDataContext,
                                             dense))[static_cast<size_t>(d * c_size + c)],
                        dense);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cohort::parallel
