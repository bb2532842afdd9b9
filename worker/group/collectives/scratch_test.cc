#include "worker/group/collectives/scratch.h"

#include <vector>

#include "gtest/gtest.h"
#include "worker/group/collectives/tensor_location.h"

namespace cohort::worker {
namespace {

class ScratchTest : public ::testing::Test {
 protected:
  std::vector<int64_t> allocated_;
  HostLocation location_{[this](DataType type, const Shape& shape) -> absl::StatusOr<Tensor> {
    allocated_.push_back(ElementCount(shape) * SizeOf(type));
    return Tensor::Uninitialized(type, shape);
  }};
  Scratch scratch_{&location_};
};

TEST_F(ScratchTest, IsReused) {
  char* const first = *scratch_.Take(Scratch::kInput, 1000);
  EXPECT_EQ(*scratch_.Take(Scratch::kInput, 10), first);
  scratch_.Trim();
  EXPECT_EQ(*scratch_.Take(Scratch::kInput, 1000), first);
  EXPECT_NE(*scratch_.Take(Scratch::kOutput, 1000), first);
  EXPECT_EQ(allocated_.size(), 2u);
}

TEST_F(ScratchTest, GrowsByDoubling) {
  for (int64_t bytes = 1; bytes < 1 << 20; bytes += 1000) {
    ASSERT_TRUE(scratch_.Take(Scratch::kInput, bytes).ok());
    ASSERT_GE(allocated_.back(), bytes);
  }
  EXPECT_LT(allocated_.size(), 8u);
}

TEST_F(ScratchTest, LargeMemoryIsReturned) {
  ASSERT_TRUE(scratch_.Take(Scratch::kInput, Scratch::kKept + 1).ok());
  EXPECT_EQ(allocated_.back(), Scratch::kKept + 1);
  scratch_.Trim();
  ASSERT_TRUE(scratch_.Take(Scratch::kInput, 10).ok());
  EXPECT_EQ(allocated_.size(), 2u);
  EXPECT_LT(allocated_.back(), 1 << 20);
}

TEST_F(ScratchTest, GivesMemoryForNothingToo) {
  EXPECT_NE(*scratch_.Take(Scratch::kInput, 0), nullptr);
}

}  // namespace
}  // namespace cohort::worker
