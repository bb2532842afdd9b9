#include "client/perf/pattern.h"

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/tensor/small_float.h"
#include "gtest/gtest.h"

namespace cohort::perf {
namespace {

constexpr int64_t kCount = 2500;

template <typename T>
std::vector<T> Filled(const Pattern& pattern, int rank, int64_t first = 0) {
  std::vector<T> elements(kCount);
  pattern.Fill(rank, first, kCount, elements.data());
  return elements;
}

TEST(PatternTest, AFilledTensorPassesTheCheck) {
  for (const DataType type : kDataTypes) {
    const Pattern pattern(type, {ReduceOp::kSum}, 3, 1);
    std::string elements(static_cast<size_t>(kCount * SizeOf(type)), '\0');
    pattern.Fill(2, 700, kCount, elements.data());
    EXPECT_EQ(pattern.CountWrong(2, 700, kCount, elements.data()), 0) << NameOf(type);
  }
}

TEST(PatternTest, OtherRanksPlacesAndRoundsAreWrong) {
  const Pattern pattern(DataType::kF32, {ReduceOp::kSum}, 3, 1);
  const std::vector<float> elements = Filled<float>(pattern, 2, 700);
  // In random numbers below 101, one of a hundred is equal by chance.
  constexpr int64_t kMost = kCount * 9 / 10;
  EXPECT_GT(pattern.CountWrong(1, 700, kCount, elements.data()), kMost);
  EXPECT_GT(pattern.CountWrong(2, 701, kCount, elements.data()), kMost);
  const Pattern next(DataType::kF32, {ReduceOp::kSum}, 3, 2);
  EXPECT_GT(next.CountWrong(2, 700, kCount, elements.data()), kMost);
}

TEST(PatternTest, CountsEachElementThatIsWrong) {
  const Pattern pattern(DataType::kI16, {ReduceOp::kSum}, 2, 0);
  std::vector<int16_t> elements = Filled<int16_t>(pattern, 0);
  for (const size_t at : {size_t{0}, size_t{1020}, size_t{1021}, size_t{2499}}) ++elements[at];
  EXPECT_EQ(pattern.CountWrong(0, 0, kCount, elements.data()), 4);
}

// Computed element by element, in another way than in Pattern.
template <typename T, typename Combine>
void ExpectReduced(DataType type, const Reduction& reduction, int ranks, const Combine& combine) {
  const Pattern pattern(type, reduction, ranks, 5);
  std::vector<std::vector<T>> inputs;
  for (int rank = 0; rank < ranks; ++rank) inputs.push_back(Filled<T>(pattern, rank, 300));
  std::vector<T> output(kCount);
  for (size_t i = 0; i < output.size(); ++i) {
    T result = inputs[0][i];
    for (size_t rank = 1; rank < inputs.size(); ++rank) result = combine(result, inputs[rank][i]);
    output[i] =
        reduction.op == ReduceOp::kAvg ? static_cast<T>(result / static_cast<T>(ranks)) : result;
  }
  EXPECT_EQ(pattern.CountWrongReduced(300, kCount, output.data()), 0)
      << NameOf(type) << " by " << NameOf(reduction.op) << " of " << ranks;
}

TEST(PatternTest, ReductionsOfWholeNumbersWrap) {
  for (const int ranks : {1, 2, 3, 7}) {
    const auto sum = [](int8_t a, int8_t b) { return static_cast<int8_t>(a + b); };
    ExpectReduced<int8_t>(DataType::kI8, {ReduceOp::kSum}, ranks, sum);
    ExpectReduced<int8_t>(DataType::kI8, {ReduceOp::kAvg}, ranks, sum);
    ExpectReduced<uint8_t>(DataType::kU8, {ReduceOp::kProd}, ranks,
                           [](uint8_t a, uint8_t b) { return static_cast<uint8_t>(a * b); });
    ExpectReduced<int64_t>(DataType::kI64, {ReduceOp::kMin}, ranks,
                           [](int64_t a, int64_t b) { return std::min(a, b); });
    ExpectReduced<uint32_t>(DataType::kU32, {ReduceOp::kBitXor}, ranks,
                            [](uint32_t a, uint32_t b) { return a ^ b; });
  }
}

TEST(PatternTest, ReductionsOfFloatingNumbers) {
  for (const int ranks : {1, 2, 3, 7}) {
    ExpectReduced<float>(DataType::kF32, {ReduceOp::kSum}, ranks, std::plus<float>());
    ExpectReduced<float>(DataType::kF32, {ReduceOp::kAvg}, ranks, std::plus<float>());
    ExpectReduced<double>(DataType::kF64, {ReduceOp::kProd}, ranks, std::multiplies<double>());
    ExpectReduced<double>(DataType::kF64, {ReduceOp::kMax}, ranks,
                          [](double a, double b) { return std::max(a, b); });
  }
}

TEST(PatternTest, SmallFloatingNumbersAreAddedInFloatAndRoundedOnce) {
  const int ranks = 7;
  const Pattern pattern(DataType::kF8E4M3, {ReduceOp::kSum}, ranks, 0);
  std::vector<float> sums(kCount, 0);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<uint8_t> input = Filled<uint8_t>(pattern, rank);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += FloatFromF8E4M3(input[i]);
  }
  std::vector<uint8_t> output;
  for (const float sum : sums) output.push_back(F8E4M3FromFloat(sum));
  EXPECT_EQ(pattern.CountWrongReduced(0, kCount, output.data()), 0);
}

}  // namespace
}  // namespace cohort::perf
