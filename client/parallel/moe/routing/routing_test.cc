#include "client/parallel/moe/routing/routing.h"

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "base/tensor/tensor.h"
#include "client/parallel/moe/routing/expert_placement.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

template <typename Number>
Tensor Matrix(DataType type, int64_t columns, std::vector<Number> numbers) {
  const auto rows = static_cast<int64_t>(numbers.size()) / columns;
  Tensor tensor = Tensor::Uninitialized(type, {rows, columns});
  std::copy(numbers.begin(), numbers.end(), static_cast<Number*>(tensor.data()));
  return tensor;
}

template <typename Number>
std::vector<Number> Numbers(const Tensor& tensor) {
  const auto* const data = static_cast<const Number*>(tensor.data());
  return std::vector<Number>(data, data + tensor.count());
}

// Experts 0 and 1 on rank 0, 2 and 3 on rank 1, 4 on rank 2.
const ExpertPlacement& Five() {
  static const ExpertPlacement placement = *ExpertPlacement::Blocks(5, 3);
  return placement;
}

TEST(PlanRoutes, SendsATokenOnceToEachRankThatItNeeds) {
  const Tensor ids = Matrix<int32_t>(DataType::kI32, 2, {0, 1, 3, 0, -1, -1, 4, 2});
  const RoutePlan plan = *PlanRoutes(ids, Five());
  EXPECT_THAT(plan.rows, ElementsAre(2, 2, 1));
  EXPECT_THAT(plan.tokens, ElementsAre(0, 1, 1, 3, 3));
}

TEST(PlanRoutes, TakesWideNumbersAndNoTokens) {
  EXPECT_THAT(PlanRoutes(Matrix<int64_t>(DataType::kI64, 1, {4, 0}), Five())->tokens,
              ElementsAre(1, 0));
  const RoutePlan none = *PlanRoutes(Tensor::Zeros(DataType::kI64, {0, 2}), Five());
  EXPECT_THAT(none.rows, ElementsAre(0, 0, 0));
  EXPECT_THAT(none.tokens, IsEmpty());
  EXPECT_THAT(PlanRoutes(Tensor::Zeros(DataType::kI32, {3, 0}), Five())->tokens, IsEmpty());
}

TEST(PlanRoutes, NamesAnInvalidExpert) {
  const auto expect_refused = [](std::vector<int64_t> ids, const char* why) {
    const absl::Status status = PlanRoutes(Matrix(DataType::kI64, 2, ids), Five()).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  expect_refused({0, 1, 2, 5}, "token 1 has expert 5 in slot 1, of 5 experts");
  expect_refused({0, -2}, "token 0 has expert -2 in slot 1");
  expect_refused({0, 1, 3, 3}, "token 1 has expert 3 in slot 1, which it has in a slot before");
  expect_refused({int64_t{1} << 40, 0}, "token 0 has expert 1099511627776");
}

TEST(Labels, GiveEachRankItsExperts) {
  const Tensor ids = Matrix<int32_t>(DataType::kI32, 2, {3, 0, 2, 3});
  const Tensor weights = Matrix<float>(DataType::kF32, 2, {0.5f, 0.25f, 0.75f, 1.0f});
  const RoutePlan plan = *PlanRoutes(ids, Five());
  ASSERT_THAT(plan.tokens, ElementsAre(0, 0, 1));
  const Tensor labels = Tensor::Zeros(DataType::kI32, {3, LabelWidth(2)});
  WriteLabels(plan, ids, weights, Five(), labels);

  const Tensor to_one = *labels.Narrow(0, 1, 2);
  const Tensor local = Tensor::Zeros(DataType::kI32, {2, 2});
  const Tensor its = Tensor::Zeros(DataType::kF32, {2, 2});
  const ReceivedLabels received = *ReadLabels(to_one, /*all=*/false, Five(), 1, local, its);
  EXPECT_THAT(Numbers<int32_t>(local), ElementsAre(1, -1, 0, 1));
  EXPECT_THAT(Numbers<float>(its), ElementsAre(0.5f, 0.0f, 0.75f, 1.0f));
  EXPECT_THAT(received.tokens, ElementsAre(0, 1));
  EXPECT_THAT(received.row_counts, ElementsAre(1, 2));
  ASSERT_EQ(received.by_expert.size(), 3u);
  EXPECT_EQ(received.by_expert[0].row, 1);
  EXPECT_EQ(received.by_expert[0].slot, 0);
  EXPECT_EQ(received.by_expert[1].row, 0);
  EXPECT_EQ(received.by_expert[2].row, 1);
  EXPECT_EQ(received.by_expert[2].slot, 1);
  EXPECT_THAT(received.weights, ElementsAre(0.75f, 0.5f, 1.0f));
}

TEST(Labels, AreReadByEachRankFromAllTokens) {
  const Tensor ids = Matrix<int64_t>(DataType::kI64, 2, {3, 0, 2, -1});
  const Tensor weights = Matrix<float>(DataType::kF32, 2, {0.5f, 0.25f, 0.75f, 1.0f});
  const Tensor labels = Tensor::Zeros(DataType::kI32, {2, LabelWidth(2)});
  WriteLabels(ids, weights, labels);
  const Tensor local = Tensor::Zeros(DataType::kI32, {2, 2});
  const Tensor its = Tensor::Zeros(DataType::kF32, {2, 2});
  const ReceivedLabels received = *ReadLabels(labels, /*all=*/true, Five(), 0, local, its);
  EXPECT_THAT(Numbers<int32_t>(local), ElementsAre(-1, 0, -1, -1));
  EXPECT_THAT(Numbers<float>(its), ElementsAre(0.0f, 0.25f, 0.0f, 0.0f));
  EXPECT_THAT(received.row_counts, ElementsAre(1, 0));
}

TEST(Labels, ImpossibleLabelsAreRejected) {
  const Tensor local = Tensor::Zeros(DataType::kI32, {1, 1});
  const Tensor its = Tensor::Zeros(DataType::kF32, {1, 1});
  const auto read = [&](std::vector<int32_t> label, bool all) {
    return ReadLabels(Matrix(DataType::kI32, 3, label), all, Five(), 1, local, its).status().code();
  };
  EXPECT_EQ(read({0, 2, 0}, false), absl::StatusCode::kInternal);
  EXPECT_EQ(read({0, 5, 0}, true), absl::StatusCode::kInternal);
  EXPECT_EQ(read({0, -2, 0}, true), absl::StatusCode::kInternal);
  EXPECT_EQ(read({-1, 0, 0}, false), absl::StatusCode::kInternal);
  EXPECT_EQ(read({0, 1, 0}, false), absl::StatusCode::kOk);
}

}  // namespace
}  // namespace cohort::parallel
