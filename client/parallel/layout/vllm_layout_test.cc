// The groups of vLLM, written by hand from its definitions.
#include "client/parallel/layout/vllm_layout.h"

#include "client/parallel/layout/layout.h"
#include "client/parallel/layout/layout_checks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;

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

}  // namespace
}  // namespace cohort::parallel
