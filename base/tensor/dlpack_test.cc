#include "base/tensor/dlpack.h"

#include <dlpack/dlpack.h>

#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

// A tensor as another library would give it away; counts the calls of its deleter.
struct Foreign {
  float numbers[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  std::vector<int64_t> shape = {3, 4};
  std::vector<int64_t> strides = {4, 1};
  int deleted = 0;
  DLManagedTensor managed = {};

  Foreign() {
    managed.dl_tensor.data = numbers;
    managed.dl_tensor.device = {kDLCPU, 0};
    managed.dl_tensor.dtype = {kDLFloat, 32, 1};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
    Refresh();
  }
  void Refresh() {
    managed.dl_tensor.ndim = static_cast<int>(shape.size());
    managed.dl_tensor.shape = shape.data();
    managed.dl_tensor.strides = strides.data();
  }
};

float At(const Tensor& tensor, int64_t row, int64_t column) {
  return static_cast<const float*>(
      tensor.data())[row * tensor.strides()[0] + column * tensor.strides()[1]];
}

TEST(FromDLPackTest, SharesMemoryAndLetsItGoOnce) {
  Foreign foreign;
  {
    const absl::StatusOr<Tensor> tensor = FromDLPack(&foreign.managed);
    ASSERT_TRUE(tensor.ok()) << tensor.status();
    EXPECT_EQ(tensor->data(), foreign.numbers);
    EXPECT_EQ(tensor->ToString(), "f32 [3, 4]");
    EXPECT_TRUE(tensor->contiguous());
    const Tensor view = *tensor->Narrow(1, 1, 2);
    EXPECT_EQ(At(view, 2, 1), 10);
    EXPECT_EQ(foreign.deleted, 0);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(FromDLPackTest, LayoutsOfAllKinds) {
  Foreign foreign;
  foreign.shape = {4, 3};
  foreign.strides = {1, 4};
  foreign.Refresh();
  EXPECT_EQ(At(*FromDLPack(&foreign.managed), 3, 2), 11);
  // From an offset, backwards.
  foreign.strides = {-1, 4};
  foreign.managed.dl_tensor.byte_offset = 3 * sizeof(float);
  EXPECT_EQ(At(*FromDLPack(&foreign.managed), 3, 2), 8);
  // Without strides: contiguous.
  foreign.managed.dl_tensor.byte_offset = 0;
  foreign.managed.dl_tensor.strides = nullptr;
  EXPECT_EQ(At(*FromDLPack(&foreign.managed), 3, 2), 11);
  // A single element.
  foreign.managed.dl_tensor.ndim = 0;
  foreign.managed.dl_tensor.shape = nullptr;
  EXPECT_EQ(FromDLPack(&foreign.managed)->count(), 1);
  EXPECT_EQ(foreign.deleted, 4);
}

TEST(FromDLPackTest, ATensorWithoutElementsNeedsNoMemory) {
  Foreign foreign;
  foreign.managed.dl_tensor.data = nullptr;
  foreign.shape = {kHuge, 0, kHuge};
  foreign.strides = {kHuge, kHuge, kHuge};
  foreign.Refresh();
  const absl::StatusOr<Tensor> tensor = FromDLPack(&foreign.managed);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->count(), 0);
  EXPECT_TRUE(tensor->contiguous());
}

TEST(FromDLPackTest, PinnedMemoryIsTheHosts) {
  Foreign foreign;
  foreign.managed.dl_tensor.device = {kDLCUDAHost, 0};
  EXPECT_TRUE(FromDLPack(&foreign.managed).ok());
}

TEST(FromDLPackTest, AGpuTensorKeepsItsDeviceThereAndBack) {
  Foreign foreign;
  foreign.managed.dl_tensor.device = {kDLCUDA, 3};
  const absl::StatusOr<Tensor> tensor = FromDLPack(&foreign.managed);
  ASSERT_TRUE(tensor.ok()) << tensor.status();
  EXPECT_EQ(tensor->device(), Device::Cuda(3));
  DLManagedTensor* const back = ToDLPack(*tensor);
  EXPECT_EQ(back->dl_tensor.device.device_type, kDLCUDA);
  EXPECT_EQ(back->dl_tensor.device.device_id, 3);
  back->deleter(back);
}

TEST(FromDLPackTest, NeedsNoDeleter) {
  Foreign foreign;
  foreign.managed.deleter = nullptr;
  EXPECT_TRUE(FromDLPack(&foreign.managed).ok());
}

TEST(FromDLPackTest, RefusesOtherDevicesAndTypes) {
  const auto refuse = [](const std::function<void(DLTensor&)>& change, const std::string& why) {
    Foreign foreign;
    change(foreign.managed.dl_tensor);
    const absl::Status status = FromDLPack(&foreign.managed).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_EQ(foreign.deleted, 1);
  };
  refuse([](DLTensor& tensor) { tensor.device = {kDLROCM, 3}; }, "rocm:3");
  refuse([](DLTensor& tensor) { tensor.device = {kDLCUDA, -1}; }, "cuda:-1");
  refuse([](DLTensor& tensor) { tensor.device = {kDLCUDA, 70000}; }, "cuda:70000");
  refuse([](DLTensor& tensor) { tensor.device = {kDLCUDAManaged, 0}; }, "cuda_managed:0");
  refuse(
      [](DLTensor& tensor) {
        const int32_t unknown = 12345;
        std::memcpy(&tensor.device.device_type, &unknown, sizeof(unknown));
      },
      "device type 12345");
  refuse([](DLTensor& tensor) { tensor.dtype.lanes = 4; }, "4 lanes");
  refuse([](DLTensor& tensor) { tensor.dtype.lanes = 0; }, "0 lanes");
  refuse([](DLTensor& tensor) { tensor.dtype = {kDLInt, 4, 1}; }, "type code 0 with 4 bits");
  refuse([](DLTensor& tensor) { tensor.dtype = {99, 32, 1}; }, "type code 99");
}

TEST(FromDLPackTest, RefusesImpossibleTensors) {
  const auto refuse = [](const std::function<void(Foreign&)>& change, const std::string& why) {
    Foreign foreign;
    change(foreign);
    const absl::Status status = FromDLPack(&foreign.managed).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    EXPECT_EQ(foreign.deleted, 1);
  };
  const auto layout = [](std::vector<int64_t> shape, std::vector<int64_t> strides) {
    return [shape, strides](Foreign& foreign) {
      foreign.shape = shape;
      foreign.strides = strides;
      foreign.Refresh();
    };
  };
  refuse([](Foreign& foreign) { foreign.managed.dl_tensor.ndim = -1; }, "-1 dimensions");
  refuse([](Foreign& foreign) { foreign.managed.dl_tensor.ndim = 1 << 30; }, "1073741824 dim");
  refuse([](Foreign& foreign) { foreign.managed.dl_tensor.shape = nullptr; }, "without a shape");
  refuse([](Foreign& foreign) { foreign.managed.dl_tensor.data = nullptr; }, "without memory");
  refuse([](Foreign& foreign) { foreign.managed.dl_tensor.byte_offset = ~uint64_t{0}; },
         "address space");
  refuse(layout({3, -4}, {4, 1}), "[3, -4]");
  refuse(layout({0, -4}, {4, 1}), "[0, -4]");
  refuse(layout({kHuge, kHuge}, {4, 1}), "larger than memory");
  refuse(layout({kHuge}, {1}), "larger than memory");
  refuse(layout({3, 4}, {kHuge, 1}), "address space");
  refuse(layout({3, 4}, {-kHuge, 1}), "address space");
  refuse(layout({2, 2}, {kHuge / 5, kHuge / 5}), "address space");
  // Below address 0.
  refuse(layout({3, 4}, {-(int64_t{1} << 59), 1}), "address space");
  EXPECT_FALSE(FromDLPack(nullptr).ok());
}

TEST(ToDLPackTest, SharesMemoryUntilItIsDeleted) {
  std::weak_ptr<const void> memory;
  DLManagedTensor* managed = nullptr;
  {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {3, 4});
    memory = tensor.owner();
    managed = ToDLPack(*tensor.Narrow(1, 1, 2));
  }
  EXPECT_FALSE(memory.expired());
  const DLTensor& view = managed->dl_tensor;
  EXPECT_EQ(view.device.device_type, kDLCPU);
  EXPECT_EQ(view.ndim, 2);
  EXPECT_THAT(std::vector<int64_t>(view.shape, view.shape + 2), ElementsAre(3, 2));
  EXPECT_THAT(std::vector<int64_t>(view.strides, view.strides + 2), ElementsAre(4, 1));
  EXPECT_EQ(view.dtype.code, kDLFloat);
  EXPECT_EQ(view.dtype.bits, 32);
  EXPECT_EQ(view.dtype.lanes, 1);
  managed->deleter(managed);
  EXPECT_TRUE(memory.expired());
}

TEST(ViewDLPackTest, SharesMemoryAndKeepsItsOwner) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {3, 4});
  DLManagedTensor* const managed = ToDLPack(tensor);
  auto owner = std::make_shared<int>();
  absl::StatusOr<Tensor> view = ViewDLPack(managed->dl_tensor, owner);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->data(), tensor.data());
  EXPECT_EQ(view->ToString(), tensor.ToString());
  EXPECT_EQ(owner.use_count(), 2);
  managed->dl_tensor.dtype.lanes = 2;
  EXPECT_EQ(ViewDLPack(managed->dl_tensor, owner).status().code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_EQ(owner.use_count(), 2);
  managed->deleter(managed);
}

TEST(ToDLPackTest, EveryTypeThereAndBack) {
  for (const DataType type : kDataTypes) {
    const Tensor tensor = Tensor::Zeros(type, {2, 0, 3});
    const absl::StatusOr<Tensor> back = FromDLPack(ToDLPack(tensor));
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(back->ToString(), tensor.ToString());
    DLManagedTensor* const managed = ToDLPack(tensor);
    const DLDataType& dtype = managed->dl_tensor.dtype;
    EXPECT_EQ(dtype.bits * dtype.lanes, 8 * SizeOf(type)) << NameOf(type);
    managed->deleter(managed);
  }
}

}  // namespace
}  // namespace cohort
