#include "worker/group/gpu/cuda_copies.h"

#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/group/gpu/cuda_location.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kLarge = int64_t{64} << 20;

class CudaCopiesTest : public ::testing::Test {
 protected:
  CudaCopiesTest() { cuda::ResetFakeRuntime({1}); }

  // Allocates memory of the device; `alive` shows whether it still exists.
  static Tensor Allocate(int64_t bytes, std::weak_ptr<const void>* alive) {
    const absl::StatusOr<Tensor> tensor = AllocateOnDevice(0, DataType::kU8, {bytes});
    EXPECT_TRUE(tensor.ok()) << tensor.status();
    *alive = tensor->owner();
    return *tensor;
  }
  // Repeats a large copy with a timeout of zero until it times out, and then drops its tensors.
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

TEST_F(CudaCopiesTest, ACopyThatIsNotDoneInTimeKeepsItsMemory) {
  CudaCopies copies(0);
  CopyTooLate(copies);
  EXPECT_FALSE(from_.expired());
  EXPECT_FALSE(to_.expired());
  // The memory is freed once the copy is done and another call comes.
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
