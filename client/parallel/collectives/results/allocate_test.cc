#include "client/parallel/collectives/results/allocate.h"

#include <cstdint>
#include <limits>
#include <new>
#include <string>

#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

absl::Status TryAllocate(const Shape& shape) {
  client::LoneGroup group;
  return Allocate(group, DataType::kF32, shape).status();
}

TEST(AllocateTest, AllocatesTheShape) {
  client::LoneGroup group;
  const absl::StatusOr<Tensor> tensor = Allocate(group, DataType::kI16, {3, 0, 5});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->shape(), (Shape{3, 0, 5}));
  EXPECT_TRUE(TryAllocate({}).ok());
}

TEST(AllocateTest, RejectsSizesThatOverflow) {
  for (const Shape& shape :
       {Shape{int64_t{1} << 32, int64_t{1} << 32}, Shape{0, int64_t{1} << 40, int64_t{1} << 40},
        Shape{int64_t{1} << 40, int64_t{1} << 40, 0}, Shape{kMost}, Shape{kMost, 0}}) {
    const absl::Status status = TryAllocate(shape);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("than can be counted"));
  }
  EXPECT_EQ(TryAllocate({2, -1}).code(), absl::StatusCode::kInvalidArgument);
}

// A group whose process has no memory left.
class FullGroup : public client::LoneGroup {
 public:
  absl::StatusOr<Tensor> Allocate(DataType, const Shape&, Device) override {
    throw std::bad_alloc();
  }
};

TEST(AllocateTest, NoMemoryIsAStatus) {
  FullGroup group;
  const absl::Status status = Allocate(group, DataType::kF32, {1 << 20, 3}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("f32 [1048576, 3]"));
}

}  // namespace
}  // namespace cohort::parallel
