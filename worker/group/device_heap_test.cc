// Tensors in memory that groups with GPUs register when they form.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/streams/stream.h"
#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using client::Group;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr int64_t kFloats = 1024;
constexpr size_t kBytes = kFloats * sizeof(float);

class DeviceHeapTest : public DeviceGroups {
 protected:
  void TearDown() override {
    groups_.clear();
    tensors_.clear();
    EXPECT_THAT(nccl_->misuses(), IsEmpty());
    EXPECT_THAT(nccl_->leaks(), IsEmpty());
  }
  void GiveHeaps(std::vector<size_t> bytes) {
    for (size_t rank = 0; rank < bytes.size(); ++rank) gpu_options_[rank].heap_bytes = bytes[rank];
  }
  // Allocates one more tensor on each rank, and checks the sum over them.
  void ExpectSumOfNew() {
    for (const absl::Status& status : Run([&](Group& group) -> absl::Status {
           const auto made = group.Allocate(DataType::kF32, {kFloats}, group.device());
           if (!made.ok()) return made.status();
           MutexLock lock(&mutex_);
           tensors_.push_back(*made);
           return absl::OkStatus();
         })) {
      ASSERT_TRUE(status.ok()) << status;
    }
    ExpectSumOfAll();
  }
  void ExpectSumOfAll() {
    for (const absl::Status& status : Run([&](Group& group) -> absl::Status {
           absl::Status status;
           for (const Tensor& tensor : tensors_) {
             if (tensor.device() != group.device()) continue;
             std::fill_n(Floats(tensor), kFloats, static_cast<float>(group.rank() + 1));
             status.Update(group.AllReduce(tensor, tensor, kSum));
             EXPECT_EQ(Floats(tensor)[kFloats - 1], size_ * (size_ + 1) / 2);
           }
           return status;
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }
  int64_t Windows() const {
    const std::vector<std::string> all = nccl_->functions();
    return std::count(all.begin(), all.end(), "ncclCommWindowRegister");
  }

  Mutex mutex_;
  std::vector<Tensor> tensors_;
};

TEST_F(DeviceHeapTest, IsRegisteredAsTheGroupFormsAndFilledUpAndThenThereIsOther) {
  GiveHeaps({3 * kBytes, 3 * kBytes, 3 * kBytes});
  for (const int ranks : {2, 3}) {
    groups_.clear();
    tensors_.clear();
    Form(Placement::kBoth, ranks);
    EXPECT_EQ(nccl_->registered(), ranks);
    for (int i = 0; i < 5; ++i) ExpectSumOfNew();
    ExpectSums(false);
    // On each rank three tensors lie one after the other in the heap, and two do not.
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<const char*> addresses;
      for (const Tensor& tensor : tensors_) {
        if (tensor.device() == Device::Cuda(rank)) {
          addresses.push_back(static_cast<const char*>(tensor.data()));
        }
      }
      ASSERT_EQ(addresses.size(), 5u);
      EXPECT_EQ(addresses[1], addresses[0] + kBytes);
      EXPECT_EQ(addresses[2], addresses[0] + 2 * kBytes);
      EXPECT_NE(addresses[3], addresses[0] + 3 * kBytes);
    }
  }
  EXPECT_EQ(Windows(), 2 + 3);
}

TEST_F(DeviceHeapTest, OnStreamsAsWell) {
  GiveHeaps({kBytes, kBytes, kBytes});
  Form(Placement::kDevice);
  for (const absl::Status& status : Run([&](Group& group) -> absl::Status {
         const auto stream = cuda::Stream::Create(group.rank());
         const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
         if (!stream.ok() || !tensor.ok()) return absl::UnknownError("no stream or tensor");
         std::fill_n(Floats(*tensor), 4, 1.F);
         client::CallOptions options;
         options.stream = stream->get();
         absl::Status status = group.AllReduce(*tensor, *tensor, kSum, options);
         status.Update(group.AllReduce(*tensor, *tensor, kSum, options));
         status.Update(group.AwaitStreams());
         EXPECT_EQ(Floats(*tensor)[3], 9);
         return status;
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST_F(DeviceHeapTest, TensorsOutliveTheGroupAndItsGenerations) {
  GiveHeaps({2 * kBytes, 2 * kBytes, 2 * kBytes});
  Form(Placement::kBoth);
  ExpectSumOfNew();
  for (const absl::Status& again : Run([](Group& group) { return group.Rejoin(); })) {
    ASSERT_TRUE(again.ok()) << again;
  }
  EXPECT_EQ(nccl_->registered(), kMostRanks);
  ExpectSumOfAll();
  ExpectSumOfNew();
  EXPECT_EQ(Windows(), 2 * kMostRanks) << "the same memory in both generations";
  groups_.clear();
  EXPECT_EQ(nccl_->registered(), 0);
  EXPECT_THAT(nccl_->leaks(), Contains("3 pieces of memory"));
  for (const Tensor& tensor : tensors_) std::memset(tensor.data(), 7, kBytes);
}

TEST_F(DeviceHeapTest, HeapsOfDifferentSizesAreNoWindowAndStillRight) {
  GiveHeaps({kBytes, 2 * kBytes, 3 * kBytes});
  Form(Placement::kBoth);
  EXPECT_EQ(nccl_->registered(), kMostRanks);
  EXPECT_EQ(Windows(), 0);
  ExpectSumOfNew();
}

TEST_F(DeviceHeapTest, WithoutAHeapOnOneRankTensorsAreNotRegistered) {
  GiveHeaps({2 * kBytes, 0, size_t{1} << 50});
  Form(Placement::kBoth);
  EXPECT_EQ(nccl_->registered(), 0);
  for (int i = 0; i < 4; ++i) ExpectSumOfNew();
}

TEST_F(DeviceHeapTest, AHeapThatNcclCannotRegisterStillWorks) {
  GiveHeaps({2 * kBytes, 2 * kBytes, 2 * kBytes});
  nccl_->FailNext("ncclCommWindowRegister", ncclSystemError, 1);
  Form(Placement::kBoth);
  EXPECT_EQ(nccl_->registered(), 0);
  for (int i = 0; i < 4; ++i) ExpectSumOfNew();
}

TEST_F(DeviceHeapTest, SomeTensorsOfItAndSomeNotAreADifference) {
  GiveHeaps({2 * kBytes, 2 * kBytes, 2 * kBytes});
  Form(Placement::kBoth);
  // The third rank's heap has no room any more.
  const auto big = groups_[2]->Allocate(DataType::kU8, {2 * kBytes}, groups_[2]->device());
  ASSERT_TRUE(big.ok()) << big.status();
  for (const absl::Status& status : Run([](Group& group) -> absl::Status {
         const auto tensor = group.Allocate(DataType::kF32, {4}, group.device());
         return tensor.ok() ? group.AllReduce(*tensor, *tensor, kSum) : tensor.status();
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("registered memory"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 2"));
  }
  EXPECT_THAT(nccl_->misuses(), IsEmpty());
}

TEST_F(DeviceHeapTest, ByDefaultThereIsNoHeap) {
  Form(Placement::kBoth);
  ExpectSumOfNew();
  EXPECT_THAT(nccl_->functions(), Not(Contains("ncclMemAlloc")));
}

}  // namespace
}  // namespace cohort::worker
