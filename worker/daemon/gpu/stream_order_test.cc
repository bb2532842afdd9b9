// Errors of StreamOrder. Tests with daemons (tests/worker) cover its normal operation, on real
// streams or on those of the fake CUDA runtime.
#include "worker/daemon/gpu/stream_order.h"

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kFlagsBytes = int64_t{64} << 10;

// A GPU whose streams reach no enqueued work before a flag is released.
class StuckGpu : public SharedGpu {
 public:
  bool lets_go = true;  // when a flag is released

  Device device() const override { return Device::Host(); }
  absl::StatusOr<std::string> Uuid() const override { return "stuck"; }
  absl::StatusOr<Tensor> Allocate(DataType, const Shape&) override { return Never(); }
  absl::Status Copy(absl::Span<const client::TensorCopy>, std::optional<void*>,
                    absl::Duration) override {
    return Never();
  }
  absl::StatusOr<Exported> Export(const void*, int64_t) override { return Never(); }
  absl::StatusOr<Imported> Import(const client::DeviceMemory&, UniqueFd) override {
    return Never();
  }
  absl::StatusOr<std::unique_ptr<client::StreamFlags>> Pin(void* memory, int64_t) override {
    return std::make_unique<Flags>(*this, static_cast<uint64_t*>(memory));
  }
  absl::StatusOr<std::shared_ptr<void>> NewStream() override {
    return std::shared_ptr<void>(std::make_shared<int>());
  }

 private:
  class Flags : public client::StreamFlags {
   public:
    Flags(StuckGpu& gpu, uint64_t* memory) : gpu_(gpu), memory_(memory) {}
    absl::Status Await(void*, int, uint64_t) override { return absl::OkStatus(); }
    absl::Status Set(void*, int flag, uint64_t number) override {
      gpu_.enqueued_.push_back({memory_ + flag, number});
      return absl::OkStatus();
    }
    void Release(int) override {
      if (!gpu_.lets_go) return;
      for (const auto& [flag, number] : gpu_.enqueued_) {
        __atomic_store_n(flag, number, __ATOMIC_RELEASE);
      }
      gpu_.enqueued_.clear();
    }

   private:
    StuckGpu& gpu_;
    uint64_t* const memory_;
  };

  static absl::Status Never() { return absl::UnimplementedError("no such call comes here"); }

  std::vector<std::pair<uint64_t*, uint64_t>> enqueued_;
};

class StreamOrderTest : public ::testing::Test {
 protected:
  StreamOrderTest() {
    std::shared_ptr<void> owner(std::aligned_alloc(4096, kFlagsBytes), std::free);
    flags_.data = static_cast<char*>(owner.get());
    flags_.bytes = kFlagsBytes;
    flags_.owner = std::move(owner);
    order_->NameRank("weights", 3);
  }

  // Runs a call. Returns the text of its error; empty after success.
  std::string Run(uint64_t number) {
    v1::StreamOrder order;
    order.set_number(number);
    return std::string(order_
                           ->Run(flags_, order, Clock::Steady().Now(),
                                 [](void*, StreamOrder::Owners*) { return absl::OkStatus(); })
                           .message());
  }

  TensorMemory flags_;
  std::shared_ptr<StuckGpu> gpu_ = std::make_shared<StuckGpu>();
  std::unique_ptr<StreamOrder> order_ =
      std::make_unique<StreamOrder>(gpu_, /*timeout=*/absl::Milliseconds(1));
};

TEST_F(StreamOrderTest, NamesTheRankWhoseCallIsOutOfOrder) {
  EXPECT_EQ(Run(2), "");
  EXPECT_THAT(Run(2), HasSubstr("rank 3 of group weights: call 2 of a stream came after call 2: "
                                "expected one of the next"));
  order_->NameRank("weights", 1);
  EXPECT_THAT(Run(1), HasSubstr("rank 1 of group weights: ")) << "as the generation has it";
  flags_.bytes = 64;
  flags_.data += 4096;
  EXPECT_THAT(Run(3), HasSubstr("rank 1 of group weights: a group has one tensor of flags"));
}

TEST_F(StreamOrderTest, NamesTheRankForWhoseStreamThereIsNoRoom) {
  std::string told;
  uint64_t number = 0;
  while (told.empty() && number < 1000) told = Run(++number);
  EXPECT_THAT(told, HasSubstr("rank 3 of group weights: the client's streams have 128 calls"));
  order_->Release();
  EXPECT_THAT(Run(number), HasSubstr("rank 3 of group weights: its client is gone"));
}

// A call's memory is freed as soon as the device is done, not at the next call.
TEST_F(StreamOrderTest, FreesTheTensorsOfTheLastCall) {
  std::weak_ptr<int> used;
  v1::StreamOrder order;
  order.set_number(1);
  const absl::Status run = order_->Run(flags_, order, Clock::Steady().Now(),
                                       [&used](void*, StreamOrder::Owners* owners) {
                                         auto owner = std::make_shared<int>();
                                         used = owner;
                                         owners->push_back(std::move(owner));
                                         return absl::OkStatus();
                                       });
  ASSERT_TRUE(run.ok()) << run;
  order_->Sweep();
  EXPECT_FALSE(used.expired()) << "the device is not done with it";
  order_->Release();
  order_->Sweep();
  EXPECT_TRUE(used.expired());
}

TEST_F(StreamOrderTest, TheLogNamesTheRankWhoseStreamDoesNotEnd) {
  EXPECT_EQ(Run(1), "");
  gpu_->lets_go = false;
  // Programs log to standard output if they have not set up their log.
  ::testing::internal::CaptureStdout();
  order_.reset();
  const std::string log = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(log, HasSubstr("the work on a stream does not finish"));
  EXPECT_THAT(log, HasSubstr("group=weights rank=3"));
}

}  // namespace
}  // namespace cohort::worker
