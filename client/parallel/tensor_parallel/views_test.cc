#include "client/parallel/tensor_parallel/views.h"

#include <algorithm>
#include <random>
#include <string>

#include "base/testing/random_tensor.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

// The numbers 0, 1, 2... in a random layout.
RandomTensor Counting(const Shape& shape, std::mt19937& random) {
  RandomTensor tensor(DataType::kU8, shape, random);
  std::string elements(static_cast<size_t>(ElementCount(shape)), '\0');
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<char>(i);
  SetElements(tensor.tensor(), elements);
  return tensor;
}

TEST(ViewsTest, KeepTheOrderOfElements) {
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    const RandomTensor tensor = Counting({3, 4, 5}, random);
    const std::string elements = ElementsOf(tensor.tensor());
    const Tensor front = Unsqueezed(tensor.tensor());
    EXPECT_EQ(front.shape(), (Shape{1, 3, 4, 5}));
    EXPECT_EQ(ElementsOf(front), elements);
    const Tensor split = WithDimSplit(tensor.tensor(), 1, 2, 2);
    EXPECT_EQ(split.shape(), (Shape{3, 2, 2, 5}));
    EXPECT_EQ(ElementsOf(split), elements);
    if (const std::optional<Tensor> rows = WithRowsMerged(tensor.tensor())) {
      EXPECT_EQ(rows->shape(), (Shape{12, 5}));
      EXPECT_EQ(ElementsOf(*rows), elements);
    } else {
      EXPECT_FALSE(tensor.tensor().contiguous());
    }
  }
}

TEST(ViewsTest, RowsAreMergedWhereTheirStridesAllowIt) {
  std::string memory(24, '\0');
  const Tensor whole(memory.data(), DataType::kU8, {2, 3, 4});
  EXPECT_TRUE(WithRowsMerged(whole).has_value());
  EXPECT_TRUE(WithRowsMerged(*whole.Narrow(2, 1, 2)).has_value());
  EXPECT_FALSE(WithRowsMerged(*whole.Narrow(1, 0, 2)).has_value());
  EXPECT_TRUE(WithRowsMerged(*whole.Narrow(1, 0, 1)).has_value());
  EXPECT_EQ(WithRowsMerged(*whole.Narrow(1, 0, 0))->shape(), (Shape{0, 4}));
  EXPECT_EQ(WithRowsMerged(Tensor(memory.data(), DataType::kU8, {7}))->shape(), (Shape{1, 7}));
  EXPECT_FALSE(WithRowsMerged(Tensor(memory.data(), DataType::kU8, {})).has_value());
}

TEST(ViewsTest, RangesInFewCopies) {
  std::mt19937 random(2);
  for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 4}, Shape{2, 3, 4}, Shape{2, 1, 3, 2}}) {
    const RandomTensor tensor = Counting(shape, random);
    const std::string elements = ElementsOf(tensor.tensor());
    const int64_t count = tensor.tensor().count();
    for (int64_t begin = 0; begin <= count; ++begin) {
      for (int64_t end = begin; end <= count; ++end) {
        const Tensor to = Tensor::Zeros(DataType::kU8, {end - begin});
        const std::vector<client::TensorCopy> copies =
            CopiesOfRange(tensor.tensor(), begin, end, to);
        EXPECT_LE(copies.size(), std::max<size_t>(1, 2 * shape.size() - (shape.empty() ? 0 : 1)));
        for (const client::TensorCopy& copy : copies) {
          ASSERT_TRUE(CopyTensor(copy.from, copy.to).ok());
        }
        EXPECT_EQ(ElementsOf(to),
                  elements.substr(static_cast<size_t>(begin), static_cast<size_t>(end - begin)));
      }
    }
  }
  const Tensor none = Tensor::Zeros(DataType::kU8, {0, 3});
  EXPECT_TRUE(CopiesOfRange(none, 0, 0, Tensor()).empty());
}

}  // namespace
}  // namespace cohort::parallel
