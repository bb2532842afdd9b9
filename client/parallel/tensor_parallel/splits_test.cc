#include "client/parallel/tensor_parallel/splits.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

template <typename T>
void ExpectWrong(const absl::StatusOr<T>& result, const std::string& says) {
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr(says));
}

TEST(SplitsTest, EqualViews) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {2, 6});
  const absl::StatusOr<std::vector<Tensor>> parts = SplitEvenly(tensor, -1, 3);
  ASSERT_TRUE(parts.ok()) << parts.status();
  ASSERT_EQ(parts->size(), 3u);
  for (int index = 0; index < 3; ++index) {
    const Tensor& part = (*parts)[static_cast<size_t>(index)];
    EXPECT_EQ(part.shape(), (Shape{2, 2}));
    EXPECT_EQ(part.data(), static_cast<float*>(tensor.data()) + 2 * index);
    const absl::StatusOr<Tensor> one = PartOf(tensor, 1, 3, index);
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->data(), part.data());
    EXPECT_EQ(one->strides(), part.strides());
  }
}

TEST(SplitsTest, UnequalPartsAreRejected) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {2, 6});
  ExpectWrong(SplitEvenly(tensor, -1, 4),
              "a split of f32 [2, 6]: the extent of dimension 1, 6, is not a multiple of 4");
  ExpectWrong(SplitEvenly(tensor, 0, 0), "is not a multiple of 0");
  ExpectWrong(SplitEvenly(tensor, 2, 1), "no dimension 2");
  ExpectWrong(SplitEvenly(Tensor::Zeros(DataType::kF32, {}), 0, 1), "of a single element");
  ExpectWrong(PartOf(tensor, 0, 2, 2), "part 2 is not in 0..1");
  ExpectWrong(PartOf(tensor, 0, 2, -1), "part -1 is not in 0..1");
}

TEST(SplitsTest, VocabularyRanges) {
  for (int rank = 0; rank < 4; ++rank) {
    const absl::StatusOr<VocabularyRange> range = VocabularyRangeOf(32000, rank, 4);
    ASSERT_TRUE(range.ok()) << range.status();
    EXPECT_EQ(range->begin, rank * 8000);
    EXPECT_EQ(range->end, rank * 8000 + 8000);
  }
  ExpectWrong(VocabularyRangeOf(32001, 0, 4), "32001 cannot be cut into 4");
  ExpectWrong(VocabularyRangeOf(-4, 0, 4), "-4 cannot be cut");
  ExpectWrong(VocabularyRangeOf(8, 4, 4), "rank 4 is not one of 4");
  ExpectWrong(VocabularyRangeOf(8, -1, 4), "rank -1 is not one of 4");
}

}  // namespace
}  // namespace cohort::parallel
