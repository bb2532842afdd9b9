#include "worker/group/cuda_copies.h"

#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/group/cuda_place.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLarge = int64_t{64} << 20;

class CudaCopiesTest : public ::testing::Test {
 protected:
  CudaCopiesTest() { cuda::ResetFakeRuntime({1}); }

  // Memory of the device, and a look at whether it is still there.
  static Tensor Allocate(int64_t bytes, std::weak_ptr<const void>* alive) {
    const absl::StatusOr<Tensor> tensor = AllocateOnDevice(0, DataType::kU8, {bytes});
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    *alive = tensor->owner();
    return *tensor;
  }
  // Too large to be done in no time; its tensors are then nobody's.
  void CopyTooLate(CudaCopies& copies) {
    const Instant deadline = Clock::Steady().Now() + absl::Minutes(1);
    absl::Status status;
    while (status.ok() && Clock::Steady().Now() < deadline) {
      const client::TensorCopy copy = {Allocate(kLarge, &from_), Allocate(kLarge, &to_)};
      status = copies.Run(absl::MakeConstSpan(&copy, 1), std::nullopt, absl::ZeroDuration());
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("may still read and write"));
  }

  std::weak_ptr<const void> from_;
  std::weak_ptr<const void> to_;
};

TEST_F(CudaCopiesTest, WhatIsNotDoneInTimeKeepsItsMemory) {
  CudaCopies copies(0);
  CopyTooLate(copies);
  EXPECT_FALSE(from_.expired());
  EXPECT_FALSE(to_.expired());
  // Until it is done, and somebody copies again.
  const Instant deadline = Clock::Steady().Now() + absl::Minutes(1);
  while (!from_.expired() && Clock::Steady().Now() < deadline) {
    const absl::Status nothing = copies.Run({}, std::nullopt, absl::Minutes(1));
    ASSERT_TRUE(nothing.ok()) << nothing;
    std::this_thread::yield();
  }
  EXPECT_TRUE(from_.expired());
  EXPECT_TRUE(to_.expired());
}

TEST_F(CudaCopiesTest, TheEndWaitsForWhatIsNotDone) {
  {
    CudaCopies copies(0);
    CopyTooLate(copies);
    EXPECT_FALSE(from_.expired());
  }
  EXPECT_TRUE(from_.expired());
  EXPECT_TRUE(to_.expired());
  EXPECT_EQ(cuda::AliveInFakeRuntime(), "");
}

}  // namespace
}  // namespace cohort::worker
