#include "worker/daemon/methods/collective_request.h"

#include <memory>
#include <utility>
#include <vector>

#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

class CollectiveRequestTest : public DeviceGroups {
 protected:
  // Runs an all_reduce of four numbers on the group's device: in place, or with an output that does
  // not exist. Returns the tensors that may still be in use in `owners`.
  static absl::Status Sum(client::Group& group, std::vector<std::shared_ptr<const void>>* owners,
                          bool has_output = true) {
    TensorTable table;
    const absl::StatusOr<Tensor> tensor = group.Allocate(DataType::kF32, {4}, group.device());
    if (!tensor.ok()) return tensor.status();
    TensorMemory memory;
    memory.data = static_cast<char*>(tensor->data());
    memory.bytes = tensor->bytes();
    memory.owner = tensor->owner();
    memory.device = group.device();
    const absl::StatusOr<uint64_t> number = table.Add(std::move(memory));
    if (!number.ok()) return number.status();
    v1::RunCollectiveRequest request;
    request.set_collective(v1::COLLECTIVE_ALL_REDUCE);
    request.set_reduce_op(static_cast<int>(ReduceOp::kSum));
    if (has_output) {
      request.set_in_place(true);
    } else {
      request.mutable_output()->set_tensor(*number + 1);
    }
    request.mutable_input()->set_tensor(*number);
    request.mutable_input()->mutable_layout()->set_data_type(static_cast<int>(DataType::kF32));
    request.mutable_input()->mutable_layout()->add_shape(4);
    v1::RunCollectiveResponse response;
    CollectiveRequest call(table, 1 << 20, request, &response);
    client::CallOptions options;
    options.timeout = absl::Milliseconds(200);
    const absl::Status status = call.Run(group, options);
    *owners = call.TakeOwners();
    return status;
  }
};

// The client frees its tensors after the failure, while the device may still use them.
TEST_F(CollectiveRequestTest, AFailedDeviceCallKeepsItsTensors) {
  Form(Placement::kDevice, 2);
  nccl_->HangNext();
  std::vector<std::vector<std::shared_ptr<const void>>> owners(2);
  for (const absl::Status& status : Run([&](client::Group& group) {
         return Sum(group, &owners[static_cast<size_t>(group.rank())]);
       })) {
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(absl::IsInvalidArgument(status)) << status;
  }
  for (const auto& of_rank : owners) EXPECT_THAT(of_rank, Not(IsEmpty()));
}

// A request that fails before it reaches a device keeps nothing: a client may repeat it without
// end.
TEST_F(CollectiveRequestTest, ACallThatReachesNoDeviceKeepsNoTensors) {
  Form(Placement::kDevice, 2);
  std::vector<std::vector<std::shared_ptr<const void>>> owners(2);
  for (const absl::Status& status : Run([&](client::Group& group) {
         return Sum(group, &owners[static_cast<size_t>(group.rank())], /*has_output=*/false);
       })) {
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  for (const auto& of_rank : owners) EXPECT_THAT(of_rank, IsEmpty());
}

}  // namespace
}  // namespace cohort::worker
