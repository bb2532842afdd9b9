#include "client/parallel/collectives/results/result_shapes.h"

#include <limits>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr Reduction kSum = {ReduceOp::kSum};
constexpr RankAndSize kSecondOfFour = {1, 4};

TensorSpec Of(const Shape& shape, DataType type = DataType::kF32) { return {type, shape}; }

void ExpectShape(const absl::StatusOr<TensorSpec>& result, const Shape& shape) {
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->shape, shape);
  EXPECT_EQ(result->type, DataType::kF32);
}

void ExpectWrong(const absl::StatusOr<TensorSpec>& result,
                 const ::testing::Matcher<std::string>& says) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), says);
}

TEST(ResultShapesTest, EqualParts) {
  const TensorSpec input = Of({2, 8, 3});
  ExpectShape(AllReduceResult(input, kSum), {2, 8, 3});
  ExpectShape(ReduceResult(input, kSecondOfFour, 3, kSum), {2, 8, 3});
  ExpectShape(BroadcastResult(input, kSecondOfFour, 0), {2, 8, 3});
  ExpectShape(AllGatherResult(input, kSecondOfFour, -1), {2, 8, 12});
  ExpectShape(AllGatherResult(input, kSecondOfFour, 0), {8, 8, 3});
  ExpectShape(GatherResult(input, kSecondOfFour, 1, 2), {2, 32, 3});
  ExpectShape(ReduceScatterResult(input, kSecondOfFour, 1, kSum), {2, 2, 3});
  ExpectShape(ScatterResult(input, kSecondOfFour, -2, 0), {2, 2, 3});
  ExpectShape(AllToAllResult(Of({8, 5}), kSecondOfFour), {8, 5});
}

TEST(ResultShapesTest, RaggedParts) {
  const Sizes sizes = {3, 0, 1, 2};
  ExpectShape(AllGatherVResult(Of({2, 0}), kSecondOfFour, 1, sizes), {2, 6});
  ExpectShape(GatherVResult(Of({0, 7}), kSecondOfFour, 0, sizes, 3), {6, 7});
  ExpectShape(ReduceScatterVResult(Of({2, 6}), {0, 4}, -1, sizes, kSum), {2, 3});
  ExpectShape(AllToAllVResult(Of({6, 2}), kSecondOfFour, sizes, {1, 1, 0, 0}), {2, 2});
}

TEST(ResultShapesTest, EmptyTensorsAndOneRank) {
  ExpectShape(AllGatherResult(Of({0, 3}), kSecondOfFour, 0), {0, 3});
  ExpectShape(ReduceScatterResult(Of({0, 3}), kSecondOfFour, 0, kSum), {0, 3});
  ExpectShape(AllReduceResult(Of({}), kSum), {});
  ExpectShape(AllGatherResult(Of({2, 3}), {0, 1}, 0), {2, 3});
  ExpectShape(AllGatherVResult(Of({2, 3}), {0, 1}, 0, {2}), {2, 3});
}

TEST(ResultShapesTest, KeepsTypeAndDevice) {
  const absl::StatusOr<TensorSpec> result =
      AllGatherResult({DataType::kC64, {2}, Device::Cuda(1)}, kSecondOfFour, 0);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->ToString(), "c64 [8] on cuda:1");
}

TEST(ResultShapesTest, NoSuchDimension) {
  for (const int dim : {2, -3, 17}) {
    ExpectWrong(AllGatherResult(Of({2, 4}), kSecondOfFour, dim),
                AllOf(HasSubstr("all_gather of f32 [2, 4]"), HasSubstr("no dimension")));
    ExpectWrong(ReduceScatterResult(Of({2, 4}), kSecondOfFour, dim, kSum), HasSubstr("no dim"));
  }
  ExpectWrong(AllGatherResult(Of({}), kSecondOfFour, 0), HasSubstr("of a single element"));
  ExpectWrong(AllToAllResult(Of({}), kSecondOfFour), HasSubstr("of a single element"));
}

TEST(ResultShapesTest, Remainders) {
  ExpectWrong(ReduceScatterResult(Of({2, 6}), kSecondOfFour, 1, kSum),
              HasSubstr("the extent of dimension 1, 6, is not a multiple of the 4 ranks"));
  ExpectWrong(ScatterResult(Of({5}), kSecondOfFour, 0, 1), HasSubstr("5, is not a multiple"));
  ExpectWrong(AllToAllResult(Of({7, 4}), kSecondOfFour), HasSubstr("7, is not a multiple"));
}

TEST(ResultShapesTest, NoSuchRoot) {
  for (const int root : {-1, 4}) {
    ExpectWrong(ReduceResult(Of({2}), kSecondOfFour, root, kSum), HasSubstr("is not in 0..3"));
    ExpectWrong(BroadcastResult(Of({2}), kSecondOfFour, root), HasSubstr("is not in 0..3"));
    ExpectWrong(GatherResult(Of({2}), kSecondOfFour, 0, root), HasSubstr("is not in 0..3"));
    ExpectWrong(ScatterResult(Of({4}), kSecondOfFour, 0, root), HasSubstr("is not in 0..3"));
    ExpectWrong(GatherVResult(Of({2}), kSecondOfFour, 0, {2, 2, 2, 2}, root),
                HasSubstr("is not in 0..3"));
  }
}

TEST(ResultShapesTest, WrongSizes) {
  ExpectWrong(AllGatherVResult(Of({2}), kSecondOfFour, 0, {2, 2, 2}),
              HasSubstr("sizes [2, 2, 2] are 3 for 4 ranks"));
  // Equal sizes are checked, too.
  ExpectWrong(AllGatherVResult(Of({3}), kSecondOfFour, 0, {2, 2, 2, 2}),
              HasSubstr("is 3, but the size of this rank is 2"));
  ExpectWrong(AllGatherVResult(Of({2}), kSecondOfFour, 0, {2, 2, -2, 2}), HasSubstr("negative"));
  ExpectWrong(ReduceScatterVResult(Of({9}), kSecondOfFour, 0, {2, 2, 2, 2}, kSum),
              HasSubstr("is 9, but the sum of the sizes is 8"));
  ExpectWrong(AllToAllVResult(Of({9}), kSecondOfFour, {2, 2, 2, 2}, {0, 0, 0, 0}),
              HasSubstr("the sum of the input sizes is 8"));
  ExpectWrong(AllToAllVResult(Of({8}), kSecondOfFour, {2, 2, 2, 2}, {0}),
              HasSubstr("output sizes [0] are 1 for 4 ranks"));
}

TEST(ResultShapesTest, RejectsTypesThatCannotBeReduced) {
  ExpectWrong(AllReduceResult(Of({2}, DataType::kC64), kSum), HasSubstr("all_reduce of c64 [2]"));
  ExpectWrong(ReduceScatterResult(Of({4}), kSecondOfFour, 0, {ReduceOp::kBitAnd}),
              HasSubstr("bit_and"));
  ExpectWrong(AllReduceResult(Of({2}), {static_cast<ReduceOp>(99)}), HasSubstr("no reduction 99"));
}

TEST(ResultShapesTest, MoreThanCanBeCounted) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max() / 8;
  ExpectWrong(AllGatherResult(Of({kHuge}), kSecondOfFour, 0), HasSubstr("can be counted"));
  ExpectWrong(AllGatherVResult(Of({8, 0}), kSecondOfFour, 0, {8, kHuge * 7, kHuge * 7, 0}),
              HasSubstr("can be counted"));
  ExpectWrong(AllReduceResult(Of({-1}), kSum), HasSubstr("negative"));
  constexpr int64_t kMany = int64_t{1} << 40;
  ExpectWrong(AllGatherResult(Of({0, kMany, kMany}), {0, 1}, 0), HasSubstr("can be counted"));
  // None at all can, where a row of them could.
  ExpectShape(AllGatherResult(Of({kHuge, 0}), {0, 1}, 0), {kHuge, 0});
}

}  // namespace
}  // namespace cohort::parallel
