// One tensor from one rank to another, on groups of every form.
#include "client/parallel/collectives/send_receive.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"
#include "tests/parallel/testing/placed_tensor.h"

namespace cohort::parallel {
namespace {

using ::cohort::testing::Form;
using ::cohort::testing::FormName;
using ::cohort::testing::PlacedTensor;
using ::testing::AllOf;
using ::testing::HasSubstr;
using worker::RandomModel;
using worker::TensorModel;

class SendReceiveTest : public cohort::testing::ParallelTest {
 protected:
  static Device DeviceOf(const client::Group& group) {
    return GetParam() == Form::kDevice ? group.device() : Device::Host();
  }
  static void ExpectIs(const Tensor& tensor, const TensorModel& model) {
    EXPECT_EQ(tensor.shape(), model.shape);
    EXPECT_EQ(tensor.type(), model.type);
    EXPECT_TRUE(ElementsOf(Touchable(tensor)) == model.bytes);
  }
};

TEST_P(SendReceiveTest, RoundTheRing) {
  for (const int size : {2, 3, 8}) {
    MakeGroup(size);
    std::mt19937 random(static_cast<uint32_t>(size));
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{5, 2, 3}, Shape{300, 200}}) {
      for (const bool is_expected : {false, true}) {
        SCOPED_TRACE(absl::StrCat(size, " ranks, ", FormatShape(shape)));
        std::vector<TensorModel> models;
        for (int rank = 0; rank < size; ++rank) {
          models.push_back(
              RandomModel(rank % 2 == 0 ? DataType::kBF16 : DataType::kC64, shape, random));
        }
        ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
          const int rank = group.rank();
          const TensorModel& from = models[static_cast<size_t>((rank + size - 1) % size)];
          std::mt19937 own(static_cast<uint32_t>(rank));
          const PlacedTensor input(group, DeviceOf(group), models[static_cast<size_t>(rank)], own);
          Messages messages(group);
          ReceiveOptions options;
          if (is_expected) options.expected = {from.type, from.shape, DeviceOf(group)};
          // One rank has to receive first, because senders of large tensors wait.
          absl::StatusOr<Tensor> received;
          if (rank == 0) received = Receive(messages, options);
          COHORT_RETURN_IF_ERROR(Send(messages, input.tensor()));
          if (rank != 0) received = Receive(messages, options);
          COHORT_RETURN_IF_ERROR(received.status());
          EXPECT_TRUE(input.Untouched());
          EXPECT_TRUE(received->contiguous());
          EXPECT_EQ(received->device(), DeviceOf(group));
          ExpectIs(*received, from);
          return absl::OkStatus();
        }));
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(SendReceiveTest, UnexpectedTensorsAreDropped) {
  MakeGroup(2);
  std::mt19937 random(1);
  const TensorModel first = RandomModel(DataType::kF32, {2, 3}, random);
  const TensorModel second = RandomModel(DataType::kF32, {4}, random);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    Messages messages(group);
    if (group.rank() == 0) {
      std::mt19937 own(1);
      const PlacedTensor a(group, DeviceOf(group), first, own);
      const PlacedTensor b(group, DeviceOf(group), second, own);
      // The sender may get the error, or may have finished before it.
      const absl::Status sent = Send(messages, a.tensor());
      EXPECT_TRUE(sent.ok() || absl::IsInvalidArgument(sent)) << sent;
      return Send(messages, b.tensor());
    }
    const absl::StatusOr<Tensor> other =
        Receive(messages, {.expected = TensorSpec{DataType::kF64, {2, 3}, DeviceOf(group)}});
    EXPECT_EQ(other.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(other.status().message()),
                AllOf(HasSubstr("f32 [2, 3]"), HasSubstr("f64 [2, 3]"), HasSubstr("rank 0")));
    COHORT_ASSIGN_OR_RETURN(const Tensor next, Receive(messages));
    ExpectIs(next, second);
    return absl::OkStatus();
  }));
}

TEST_P(SendReceiveTest, InvalidPeers) {
  MakeGroup(2);
  client::Group& group = rank(0);
  Messages messages(group);
  const Tensor tensor = Upload(group, Tensor::Zeros(DataType::kF32, {2}));
  for (const int peer : {-1, 0, 2}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Send(messages, tensor, {.destination = peer})));
    EXPECT_TRUE(absl::IsInvalidArgument(Receive(messages, {.source = peer}).status()));
  }
  MakeGroup(1);
  Messages alone(rank(0));
  EXPECT_TRUE(
      absl::IsInvalidArgument(Send(alone, Upload(rank(0), Tensor::Zeros(DataType::kF32, {2})))));
  EXPECT_TRUE(absl::IsInvalidArgument(Receive(alone).status()));
}

INSTANTIATE_TEST_SUITE_P(Forms, SendReceiveTest, ::testing::ValuesIn(cohort::testing::kForms),
                         FormName);

}  // namespace
}  // namespace cohort::parallel
