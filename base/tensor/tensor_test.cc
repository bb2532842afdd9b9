#include "base/tensor/tensor.h"

#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// 0, 1, 2, ... in the order of the elements.
Tensor Counting(Shape shape) {
  Tensor tensor = Tensor::Zeros(DataType::kI32, std::move(shape));
  auto* const numbers = static_cast<int32_t*>(tensor.data());
  std::iota(numbers, numbers + tensor.count(), 0);
  return tensor;
}

std::vector<int32_t> Numbers(const Tensor& tensor) {
  const Tensor packed = Packed(tensor);
  const auto* const numbers = static_cast<const int32_t*>(packed.data());
  return std::vector<int32_t>(numbers, numbers + packed.count());
}

TEST(ShapeTest, Counts) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({3, 4}), 12);
  EXPECT_EQ(ElementCount({3, 0, 4}), 0);
  EXPECT_EQ(FormatShape({3, 4}), "[3, 4]");
  EXPECT_EQ(FormatShape({}), "[]");
  EXPECT_THAT(ContiguousStrides({2, 3, 4}), ElementsAre(12, 4, 1));
}

TEST(Tensor, CountsBytesThatFit) {
  constexpr int64_t kLarge = int64_t{1} << 32;
  EXPECT_EQ(CountableBytes(DataType::kF32, {3, 4}), 48);
  EXPECT_EQ(CountableBytes(DataType::kF32, {3, 0, 4}), 48);
  EXPECT_EQ(CountableBytes(DataType::kF32, {kLarge, kLarge}), std::nullopt);
  EXPECT_EQ(CountableBytes(DataType::kF32, {kLarge, 0, kLarge}), std::nullopt);
}

TEST(ShapeTest, DimensionsCountFromBothEnds) {
  EXPECT_EQ(*ResolveDim({3, 4, 5}, 0), 0);
  EXPECT_EQ(*ResolveDim({3, 4, 5}, 2), 2);
  EXPECT_EQ(*ResolveDim({3, 4, 5}, -1), 2);
  EXPECT_EQ(*ResolveDim({3, 4, 5}, -3), 0);
  for (const int dim : {3, -4}) {
    const absl::Status status = ResolveDim({3, 4, 5}, dim).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("no dimension ", dim)));
  }
  EXPECT_FALSE(ResolveDim({}, 0).ok());
  EXPECT_FALSE(ResolveDim({}, -1).ok());
}

TEST(TensorTest, ViewsAreOnTheSameDevice) {
  char memory[64];  // of a GPU, as it were
  const Tensor tensor(memory, DataType::kF32, {4, 4}, nullptr, Device::Cuda(1));
  EXPECT_EQ(tensor.Narrow(0, 1, 2)->device(), Device::Cuda(1));
  EXPECT_EQ(tensor.Reshape({16})->device(), Device::Cuda(1));
  EXPECT_EQ(tensor.Permute({1, 0}).device(), Device::Cuda(1));
  const Tensor strided =
      Tensor::Strided(memory, DataType::kF32, {4, 2}, {4, 1}, nullptr, Device::Cuda(1));
  EXPECT_EQ(strided.device(), Device::Cuda(1));
  EXPECT_EQ(strided.ToString(), "f32 [4, 2] on cuda:1");
  EXPECT_TRUE(Tensor::Zeros(DataType::kF32, {4}).device().is_host());
}

TEST(TensorTest, MemoryOfAGpuIsNotCopiedHere) {
  const Tensor host = Tensor::Zeros(DataType::kF32, {4});
  const Tensor device(host.data(), DataType::kF32, {4}, nullptr, Device::Cuda(0));
  for (const absl::Status& status : {CopyTensor(host, device), CopyTensor(device, host)}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("on cuda:0"));
  }
}

TEST(TensorTest, KeepsItsMemory) {
  Tensor view;
  EXPECT_EQ(view.count(), 0);
  {
    const Tensor tensor = Counting({3, 4});
    EXPECT_EQ(tensor.bytes(), 48);
    EXPECT_EQ(tensor.ToString(), "i32 [3, 4]");
    view = *tensor.Narrow(0, 2, 1);
  }
  EXPECT_THAT(Numbers(view), ElementsAre(8, 9, 10, 11));
}

TEST(TensorTest, Narrow) {
  const Tensor tensor = Counting({3, 4});
  EXPECT_TRUE(tensor.contiguous());
  const Tensor columns = *tensor.Narrow(1, 1, 2);
  EXPECT_FALSE(columns.contiguous());
  EXPECT_THAT(Numbers(columns), ElementsAre(1, 2, 5, 6, 9, 10));
  EXPECT_TRUE(tensor.Narrow(0, 1, 2)->contiguous());
  EXPECT_EQ(tensor.Narrow(1, 4, 0)->count(), 0);
  EXPECT_FALSE(tensor.Narrow(1, 4, 1).ok());
  EXPECT_FALSE(tensor.Narrow(1, -1, 1).ok());
  EXPECT_FALSE(tensor.Narrow(1, 0, -1).ok());
  EXPECT_FALSE(tensor.Narrow(2, 0, 1).ok());
  EXPECT_FALSE(tensor.Narrow(-1, 0, 1).ok());
}

TEST(TensorTest, ReshapeAndPermute) {
  const Tensor tensor = Counting({2, 6});
  EXPECT_THAT(Numbers(*tensor.Reshape({3, 4})->Narrow(0, 1, 1)), ElementsAre(4, 5, 6, 7));
  EXPECT_FALSE(tensor.Reshape({5}).ok());
  EXPECT_FALSE(tensor.Reshape({-2, -6}).ok());
  const Tensor turned = tensor.Permute({1, 0});
  EXPECT_THAT(turned.shape(), ElementsAre(6, 2));
  EXPECT_THAT(Numbers(*turned.Narrow(0, 0, 2)), ElementsAre(0, 6, 1, 7));
  EXPECT_FALSE(turned.Reshape({12}).ok());
}

TEST(TensorTest, ContiguousWhereStridesDoNotCount) {
  int32_t numbers[12] = {};
  EXPECT_TRUE(Tensor::Strided(numbers, DataType::kI32, {1, 3, 4}, {-5, 4, 1}).contiguous());
  EXPECT_TRUE(Tensor::Strided(numbers, DataType::kI32, {3, 0}, {17, 17}).contiguous());
  EXPECT_TRUE(Tensor::Strided(numbers, DataType::kI32, {}, {}).contiguous());
  EXPECT_FALSE(Tensor::Strided(numbers, DataType::kI32, {3, 4}, {1, 3}).contiguous());
  EXPECT_FALSE(Tensor::Strided(numbers, DataType::kI32, {2}, {2}).contiguous());
  EXPECT_FALSE(Tensor::Strided(numbers, DataType::kI32, {2}, {0}).contiguous());
}

TEST(CopyTensorTest, RefusesAnotherTypeOrShape) {
  const Tensor tensor = Counting({2, 3});
  EXPECT_FALSE(CopyTensor(tensor, Tensor::Zeros(DataType::kU32, {2, 3})).ok());
  EXPECT_FALSE(CopyTensor(tensor, Tensor::Zeros(DataType::kI32, {3, 2})).ok());
}

TEST(CopyTensorTest, ACopyOfNoElementsTouchesNothing) {
  EXPECT_TRUE(CopyTensor(Tensor(nullptr, DataType::kF32, {4, 0}),
                         Tensor::Strided(nullptr, DataType::kF32, {4, 0}, {1, 9}))
                  .ok());
}

TEST(CopyTensorTest, RepeatsWhereAStrideIsZero) {
  int32_t numbers[2] = {5, 7};
  const Tensor repeated = Tensor::Strided(numbers, DataType::kI32, {3, 2}, {0, 1});
  EXPECT_THAT(Numbers(repeated), ElementsAre(5, 7, 5, 7, 5, 7));
}

TEST(CopyTensorTest, FromAnyLayoutToAny) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (int round = 0; round < 4000; ++round) {
    const DataType type = kDataTypes[random() % kDataTypes.size()];
    Shape shape;
    const bool large = random() % 20 == 0;
    for (size_t dims = random() % (large ? 3 : 6); dims > 0; --dims) {
      shape.push_back(static_cast<int64_t>(random() % (large ? 90 : 6)));
    }
    const RandomTensor from(type, shape, random);
    const RandomTensor to(type, shape, random);
    std::string elements(static_cast<size_t>(from.tensor().bytes()), '\0');
    for (char& byte : elements) byte = static_cast<char>(random());
    SetElements(from.tensor(), elements);
    ASSERT_TRUE(CopyTensor(from.tensor(), to.tensor()).ok());
    ASSERT_EQ(ElementsOf(to.tensor()), elements) << from.tensor().ToString() << ", round " << round;
    ASSERT_FALSE(to.Strayed()) << to.tensor().ToString() << ", round " << round;
  }
}

}  // namespace
}  // namespace cohort
