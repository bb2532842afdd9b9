// Lifetimes of memory on a stream, and shapes above any memory. The exchange itself: see
// tests/parallel/tensor_parallel_test.cc.
#include "client/parallel/tensor_parallel/sequence_exchange.h"

#include <memory>
#include <string>
#include <vector>

#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A group with a GPU whose memory is the process's; it records the order of its operations.
class RecordingGroup : public client::LoneGroup {
 public:
  std::vector<std::string> calls;
  absl::Status exchange;

  Device device() const override { return Device::Cuda(0); }
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape, Device device) override {
    const Tensor memory = Tensor::Zeros(type, shape);
    std::shared_ptr<const void> owner(
        memory.data(), [this, kept = memory.owner()](const void*) { calls.push_back("free"); });
    return Tensor(memory.data(), type, shape, std::move(owner), device);
  }
  absl::Status CopyAll(absl::Span<const client::TensorCopy> copies,
                       const client::CallOptions& call) override {
    for (const client::TensorCopy& copy : copies) {
      calls.push_back(copy.to.device().is_host() ? "copy to the host" : "copy");
    }
    EXPECT_TRUE(call.stream.has_value());
    return absl::OkStatus();
  }
  absl::Status Run(const CollectiveCall& call, const Tensor&, const Tensor&,
                   const client::CallOptions&) override {
    EXPECT_EQ(call.collective, Collective::kAllToAll);
    calls.push_back("exchange");
    return exchange;
  }
  absl::Status AwaitStreams(const client::CallOptions&) override {
    calls.push_back("await");
    return absl::OkStatus();
  }
};

// Its rows are not at even distances, so they have to be copied first.
Tensor Uneven() {
  const Tensor whole = Tensor::Zeros(DataType::kF32, {2, 3, 4});
  return *Tensor(whole.data(), whole.type(), whole.shape(), whole.owner(), Device::Cuda(0))
              .Narrow(1, 0, 2);
}

SequenceExchangeOptions OnStream() {
  SequenceExchangeOptions options;
  options.call.stream = nullptr;
  return options;
}

TEST(SequenceExchangeTest, ACopyLivesUntilTheExchangeHasReadIt) {
  RecordingGroup group;
  absl::StatusOr<Tensor> result = HiddenToSequence(group, Uneven(), OnStream());
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_THAT(group.calls, ElementsAre("copy", "exchange", "await", "free"));
  result = absl::UnknownError("");
}

TEST(SequenceExchangeTest, ACopyThatIsNotReadLivesUntilItIsMade) {
  RecordingGroup group;
  group.exchange = absl::AbortedError("rank 1 is lost");
  EXPECT_TRUE(absl::IsAborted(HiddenToSequence(group, Uneven(), OnStream()).status()));
  // The result's memory is freed, too.
  EXPECT_THAT(group.calls, ElementsAre("copy", "exchange", "copy to the host", "free", "free"));
}

TEST(SequenceExchangeTest, RowsThatCannotBeCounted) {
  client::LoneGroup group;
  for (const Shape& shape : {Shape{int64_t{1} << 40, int64_t{1} << 40, 0},
                             Shape{0, int64_t{1} << 40, int64_t{1} << 40}}) {
    const Tensor none(nullptr, DataType::kF32, shape);
    for (const absl::Status& status :
         {SequenceToHidden(group, none).status(), HiddenToSequence(group, none).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("can be counted"));
    }
  }
}

}  // namespace
}  // namespace cohort::parallel
