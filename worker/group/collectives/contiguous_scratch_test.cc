#include "worker/group/collectives/contiguous_scratch.h"

#include <vector>

#include "gtest/gtest.h"
#include "worker/group/collectives/tensor_location.h"

namespace cohort::worker {
namespace {

class ContiguousScratchTest : public ::testing::Test {
 protected:
  std::vector<int64_t> allocated_;
  HostLocation location_{[this](DataType type, const Shape& shape) -> absl::StatusOr<Tensor> {
    allocated_.push_back(ElementCount(shape) * SizeOf(type));
    return Tensor::Uninitialized(type, shape);
  }};
  ContiguousScratch scratch_{&location_};
};

TEST_F(ContiguousScratchTest, IsReused) {
  char* const first = *scratch_.Take(ContiguousScratch::kInput, 1000);
  EXPECT_EQ(*scratch_.Take(ContiguousScratch::kInput, 10), first);
  scratch_.Trim();
  EXPECT_EQ(*scratch_.Take(ContiguousScratch::kInput, 1000), first);
  EXPECT_NE(*scratch_.Take(ContiguousScratch::kOutput, 1000), first);
  EXPECT_EQ(allocated_.size(), 2u);
}

TEST_F(ContiguousScratchTest, GrowsByDoubling) {
  for (int64_t bytes = 1; bytes < 1 << 20; bytes += 1000) {
    ASSERT_TRUE(scratch_.Take(ContiguousScratch::kInput, bytes).ok());
    ASSERT_GE(allocated_.back(), bytes);
  }
  EXPECT_LT(allocated_.size(), 8u);
}

TEST_F(ContiguousScratchTest, LargeMemoryIsReturned) {
  ASSERT_TRUE(scratch_.Take(ContiguousScratch::kInput, ContiguousScratch::kKept + 1).ok());
  EXPECT_EQ(allocated_.back(), ContiguousScratch::kKept + 1);
  scratch_.Trim();
  ASSERT_TRUE(scratch_.Take(ContiguousScratch::kInput, 10).ok());
  EXPECT_EQ(allocated_.size(), 2u);
  EXPECT_LT(allocated_.back(), 1 << 20);
}

TEST_F(ContiguousScratchTest, GivesMemoryForNothingToo) {
  EXPECT_NE(*scratch_.Take(ContiguousScratch::kInput, 0), nullptr);
}

}  // namespace
}  // namespace cohort::worker
