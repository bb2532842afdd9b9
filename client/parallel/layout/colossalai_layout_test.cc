// The groups of ColossalAI, written by hand from its definitions.
#include "client/parallel/layout/colossalai_layout.h"

#include "client/parallel/layout/layout.h"
#include "client/parallel/layout/layout_checks.h"
#include "client/parallel/layout/megatron_layout.h"
#include "client/parallel/layout/vllm_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace cohort::parallel
