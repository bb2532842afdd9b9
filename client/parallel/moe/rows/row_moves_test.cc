#include "client/parallel/moe/rows/row_moves.h"

#include <cstdint>
#include <numeric>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/tensor/data_type.h"
#include "base/tensor/tensor.h"
#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;

absl::Span<const int32_t> NumbersOf(const Tensor& tensor) {
  return {static_cast<const int32_t*>(tensor.data()), static_cast<size_t>(tensor.count())};
}

class RowMovesTest : public ::testing::Test {
 protected:
  RowMovesTest() { std::iota(numbers_.begin(), numbers_.end(), 0); }

  client::LoneGroup group_;
  std::vector<int32_t> numbers_ = std::vector<int32_t>(12);
  // The columns 1 and 2 of four.
  const Tensor columns_ = Tensor::Strided(&numbers_[1], DataType::kI32, {3, 2}, {4, 1});
};

TEST_F(RowMovesTest, TakesRowsThatLieApart) {
  const Tensor taken = Tensor::Zeros(DataType::kI32, {4, 2});
  const absl::Status status = TakeRows(group_, columns_, {2, 0, 0, 1}, taken, {});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(NumbersOf(taken), ElementsAre(9, 10, 1, 2, 1, 2, 5, 6));
}

TEST_F(RowMovesTest, PlacesRowsThatLieApart) {
  const Tensor placed = Tensor::Zeros(DataType::kI32, {4, 2});
  const absl::Status status = PlaceRows(group_, columns_, {3, 0, 2}, placed, {});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_THAT(NumbersOf(placed), ElementsAre(5, 6, 0, 0, 9, 10, 1, 2));
}

}  // namespace
}  // namespace cohort::parallel
