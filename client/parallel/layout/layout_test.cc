// Rules of all layouts.
#include "client/parallel/layout/layout.h"

#include <optional>
#include <random>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/parallel/layout/layout_checks.h"
#include "client/parallel/layout/megatron_layout.h"
#include "client/parallel/layout/vllm_layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
