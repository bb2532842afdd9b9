#include "base/tensor/host_tensor.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(HostTensorTest, HasTheRequestedShapeAndType) {
  const absl::StatusOr<Tensor> tensor = NewHostTensor(DataType::kBF16, {3, 5});
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->ToString(), "bf16 [3, 5]");
  EXPECT_NE(tensor->data(), nullptr);
  EXPECT_EQ(NewHostTensor(DataType::kF32, {0, 7})->count(), 0);
  EXPECT_EQ(NewHostTensor(DataType::kF32, {})->count(), 1);
}

TEST(HostTensorTest, SizesThatNoMachineHas) {
  const int64_t huge = int64_t{1} << 40;
  for (const Shape& shape : {Shape{huge, 64}, Shape{huge, huge}, Shape{0, huge, huge},
                             Shape{int64_t{1} << 32, int64_t{1} << 32}}) {
    const absl::Status status = NewHostTensor(DataType::kF32, shape).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(FormatShape(shape)));
  }
}

TEST(HostTensorTest, NegativeExtents) {
  EXPECT_TRUE(absl::IsInvalidArgument(NewHostTensor(DataType::kF32, {2, -1}).status()));
}

}  // namespace
}  // namespace cohort
