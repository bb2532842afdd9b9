#include "client/parallel/collectives/results/result_buffers.h"

#include <utility>

#include "client/collective/testing/lone_group.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

class ResultBuffersTest : public ::testing::Test {
 protected:
  Buffers Prepare(const std::vector<TensorSpec>& specs) {
    absl::StatusOr<Buffers> buffers = Buffers::Prepare(group_, specs);
    EXPECT_TRUE(buffers.ok()) << buffers.status();
    return *std::move(buffers);
  }
  static Tensor Take(const Buffers& buffers, const TensorSpec& spec) {
    absl::StatusOr<Tensor> tensor = buffers.Take(spec);
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->shape(), spec.shape);
    EXPECT_EQ(tensor->type(), spec.type);
    return *std::move(tensor);
  }

  client::LoneGroup group_;
};

TEST_F(ResultBuffersTest, MemoryInUseIsNotReused) {
  const TensorSpec spec = {DataType::kF32, {4, 4}};
  const Buffers buffers = Prepare({spec});
  Tensor first = Take(buffers, spec);
  void* const data = first.data();
  EXPECT_EQ(buffers.counts().in_use, 1);
  const Tensor second = Take(buffers, spec);
  EXPECT_NE(second.data(), data);
  EXPECT_EQ(buffers.counts().missed, 1);

  // A view counts as a use.
  absl::StatusOr<Tensor> part = first.Narrow(0, 3, 1);
  ASSERT_TRUE(part.ok());
  first = Tensor();
  EXPECT_NE(Take(buffers, spec).data(), data);
  *part = Tensor();
  EXPECT_EQ(buffers.counts().free, 1);
  EXPECT_EQ(Take(buffers, spec).data(), data);
}

TEST_F(ResultBuffersTest, TheSmallestThatIsLargeEnough) {
  const Buffers buffers = Prepare({{DataType::kU8, {100}}, {DataType::kU8, {10}}});
  const Tensor small = Take(buffers, {DataType::kU8, {9}});
  const Tensor large = Take(buffers, {DataType::kU8, {9}});
  EXPECT_EQ(buffers.counts().free, 0);
  EXPECT_EQ(buffers.counts().missed, 0);
  void* const data = large.data();
  EXPECT_NE(data, small.data());
  const Tensor none = Take(buffers, {DataType::kU8, {9}});
  EXPECT_EQ(buffers.counts().missed, 1);
}

TEST_F(ResultBuffersTest, TensorsOutliveTheBuffers) {
  Tensor tensor;
  {
    const Buffers buffers = Prepare({{DataType::kU8, {64}}});
    tensor = Take(buffers, {DataType::kU8, {64}});
  }
  *static_cast<char*>(tensor.data()) = 1;
}

TEST_F(ResultBuffersTest, TensorsWithoutElements) {
  const Buffers buffers = Prepare({{DataType::kU8, {0}}});
  const Tensor tensor = Take(buffers, {DataType::kF32, {0, 3}});
  EXPECT_EQ(tensor.count(), 0);
  EXPECT_EQ(buffers.counts().in_use, 0);
}

TEST_F(ResultBuffersTest, RejectsSizesThatOverflow) {
  const TensorSpec huge = {DataType::kF32, {int64_t{1} << 32, int64_t{1} << 32}};
  const absl::StatusOr<Buffers> none = Buffers::Prepare(group_, {huge});
  EXPECT_EQ(none.status().code(), absl::StatusCode::kInvalidArgument) << none.status();
  const absl::StatusOr<Tensor> taken = Prepare({}).Take(huge);
  EXPECT_EQ(taken.status().code(), absl::StatusCode::kInvalidArgument) << taken.status();
}

}  // namespace
}  // namespace cohort::parallel
