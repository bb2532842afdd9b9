// The groups of Megatron, written by hand from its definitions.
#include "client/parallel/layout/megatron_layout.h"

#include <algorithm>
#include <iterator>

#include "client/parallel/layout/layout.h"
#include "client/parallel/layout/layout_checks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

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

}  // namespace
}  // namespace cohort::parallel
