#include "worker/communicator/nccl/api/testing/fake_arithmetic.h"

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include "base/tensor/small_float.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

// One element of each rank.
template <typename T>
T Reduced(ncclDataType_t type, ncclRedOp_t op, const std::vector<T>& elements,
          const std::vector<T>& scales = {}) {
  std::vector<const void*> inputs;
  for (const T& element : elements) inputs.push_back(&element);
  std::vector<FakeScalar> scalars;
  for (const T& scale : scales) {
    scalars.emplace_back();
    std::memcpy(scalars.back().data(), &scale, sizeof(scale));
  }
  T result{};
  ReduceAsNccl(type, op, inputs, scalars, &result, 1);
  return result;
}

TEST(FakeArithmeticTest, IntegersWrapAndAveragesOfThemDivideBehind) {
  EXPECT_EQ(Reduced<uint8_t>(ncclUint8, ncclSum, {200, 100}), 44);
  EXPECT_EQ(Reduced<int32_t>(ncclInt32, ncclSum, {std::numeric_limits<int32_t>::max(), 1}),
            std::numeric_limits<int32_t>::min());
  EXPECT_EQ(Reduced<int8_t>(ncclInt8, ncclProd, {-3, 50}), static_cast<int8_t>(-150));
  EXPECT_EQ(Reduced<int64_t>(ncclInt64, ncclAvg, {-1, -6}), -3);
  EXPECT_EQ(Reduced<uint32_t>(ncclUint32, ncclMax, {1, 0xFFFFFFFF}), 0xFFFFFFFF);
  EXPECT_EQ(Reduced<int8_t>(ncclInt8, ncclMin, {1, -1}), -1);
}

TEST(FakeArithmeticTest, SmallFloatsAreRoundedAtEveryStep) {
  // Kept exactly, 256 + 1 + 1 would be 258; of bf16, 256 + 1 is 256.
  const uint16_t large = BF16FromFloat(256);
  const uint16_t one = BF16FromFloat(1);
  EXPECT_EQ(FloatFromBF16(Reduced<uint16_t>(ncclBfloat16, ncclSum, {large, one, one})), 256);
  EXPECT_EQ(FloatFromF16(Reduced<uint16_t>(ncclFloat16, ncclSum,
                                           {F16FromFloat(256), F16FromFloat(1), F16FromFloat(1)})),
            258);
}

TEST(FakeArithmeticTest, AveragesOfFloatsScaleBeforeTheyAdd) {
  const float third = 1.0f / 3;
  EXPECT_EQ(Reduced<float>(ncclFloat32, ncclAvg, {1, 1, 1}), third + third + third);
  const float third16 = FloatFromBF16(BF16FromFloat(third));
  const float two = FloatFromBF16(BF16FromFloat(third16 + third16));
  EXPECT_EQ(FloatFromBF16(Reduced<uint16_t>(
                ncclBfloat16, ncclAvg, {BF16FromFloat(1), BF16FromFloat(1), BF16FromFloat(1)})),
            FloatFromBF16(BF16FromFloat(two + third16)));
}

TEST(FakeArithmeticTest, EachRankHasItsScale) {
  EXPECT_EQ(Reduced<double>(ncclFloat64, ncclNumOps, {2, 3}, {0.5, 10}), 31);
  EXPECT_EQ(Reduced<int32_t>(ncclInt32, ncclNumOps, {2, 3}, {-1, 2}), 4);
}

TEST(FakeArithmeticTest, ANanIsPassedOver) {
  const float nan = std::nanf("");
  EXPECT_EQ(Reduced<float>(ncclFloat32, ncclMax, {nan, 1}), 1);
  EXPECT_EQ(Reduced<float>(ncclFloat32, ncclMin, {1, nan}), 1);
  EXPECT_TRUE(std::isnan(Reduced<float>(ncclFloat32, ncclSum, {1, nan})));
}

TEST(FakeArithmeticTest, KnowsTheTypes) {
  EXPECT_EQ(NcclBytes(ncclFloat8e5m2), 1u);
  EXPECT_EQ(NcclBytes(ncclFloat64), 8u);
  EXPECT_EQ(NcclBytes(ncclNumTypes), 0u);
}

}  // namespace
}  // namespace cohort::worker
