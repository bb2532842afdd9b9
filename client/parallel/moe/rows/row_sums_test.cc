#include "client/parallel/moe/rows/row_sums.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "base/tensor/small_float.h"
#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;

Tensor Floats(const Shape& shape, const std::vector<float>& numbers) {
  Tensor tensor = Tensor::Uninitialized(DataType::kF32, shape);
  std::copy(numbers.begin(), numbers.end(), static_cast<float*>(tensor.data()));
  return tensor;
}

TEST(TermsOf, KeepTheOrderOfRows) {
  const RowTerms terms = TermsOf({2, 0, 2, 0}, 4, {1, 2, 3, 4});
  EXPECT_THAT(terms.begins, ElementsAre(0, 2, 2, 4, 4));
  EXPECT_THAT(terms.rows, ElementsAre(1, 3, 0, 2));
  EXPECT_THAT(terms.weights, ElementsAre(2, 4, 1, 3));
}

TEST(SumRows, WeighAndAddAndLeaveZerosElsewhere) {
  const Tensor from = Floats({3, 2}, {1, 2, 10, 20, 100, 200});
  const Tensor to = Floats({3, 2}, {7, 7, 7, 7, 7, 7});
  SumRows(from, TermsOf({0, 2, 0}, 3, {1.0f, 0.5f, 2.0f}), to);
  const auto* const sums = static_cast<const float*>(to.data());
  EXPECT_THAT(std::vector<float>(sums, sums + 6), ElementsAre(201, 402, 0, 0, 5, 10));
}

TEST(SumRows, MayHaveNoElements) {
  SumRows(Floats({0, 3}, {}), TermsOf({}, 0), Floats({0, 3}, {}));
  SumRows(Floats({2, 0}, {}), TermsOf({0, 0}, 1), Floats({1, 0}, {}));
}

// In the given order: another order would lose the small number.
TEST(SumRows, AddInOrder) {
  const Tensor from = Floats({3, 1}, {1e8f, -1e8f, 1.0f});
  const Tensor to = Floats({1, 1}, {0});
  SumRows(from, TermsOf({0, 0, 0}, 1), to);
  EXPECT_EQ(*static_cast<const float*>(to.data()), 1.0f);
}

template <typename Bits>
void ExpectEveryNumberReadAs(DataType type, float (*read)(Bits), Bits (*write)(float)) {
  const int64_t count = int64_t{1} << (8 * sizeof(Bits));
  const Tensor from = Tensor::Uninitialized(type, {1, count});
  for (int64_t i = 0; i < count; ++i) static_cast<Bits*>(from.data())[i] = static_cast<Bits>(i);
  const Tensor to = Tensor::Zeros(type, {1, count});
  SumRows(from, TermsOf({0}, 1, {1.0f}), to);
  for (int64_t i = 0; i < count; ++i) {
    const Bits expected = write(0.0f + read(static_cast<Bits>(i)));
    const Bits got = static_cast<const Bits*>(to.data())[i];
    if (std::isnan(read(expected))) {
      EXPECT_TRUE(std::isnan(read(got))) << i;
    } else {
      EXPECT_EQ(got, expected) << i;
    }
  }
}

TEST(SumRows, ReadEveryNumberOfEverySmallType) {
  ExpectEveryNumberReadAs<uint16_t>(DataType::kF16, FloatFromF16, F16FromFloat);
  ExpectEveryNumberReadAs<uint16_t>(DataType::kBF16, FloatFromBF16, BF16FromFloat);
  ExpectEveryNumberReadAs<uint8_t>(DataType::kF8E4M3, FloatFromF8E4M3, F8E4M3FromFloat);
  ExpectEveryNumberReadAs<uint8_t>(DataType::kF8E5M2, FloatFromF8E5M2, F8E5M2FromFloat);
}

TEST(SumRows, MatchSumsOfDoublesInLongRows) {
  std::mt19937 random(20261122);
  std::uniform_real_distribution<double> number(-1, 1);
  constexpr int64_t kRow = 200;  // some whole lanes, and a rest
  const Tensor from = Tensor::Zeros(DataType::kF64, {5, kRow});
  auto* const in = static_cast<double*>(from.data());
  for (int64_t i = 0; i < from.count(); ++i) in[i] = number(random);
  const Tensor to = Tensor::Zeros(DataType::kF64, {2, kRow});
  SumRows(from, TermsOf({1, 0, 1, 1, 0}, 2), to);
  const auto* const out = static_cast<const double*>(to.data());
  for (int64_t i = 0; i < kRow; ++i) {
    EXPECT_EQ(out[i], in[kRow + i] + in[4 * kRow + i]);
    EXPECT_EQ(out[kRow + i], in[i] + in[2 * kRow + i] + in[3 * kRow + i]);
  }
}

}  // namespace
}  // namespace cohort::parallel
