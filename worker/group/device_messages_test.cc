// Groups that move memory of the host and of GPUs. Control messages about messages of GPUs and
// messages of the host go through one communicator; neither is taken for the other.
#include <algorithm>
#include <atomic>
#include <random>
#include <string>
#include <vector>

#include "base/status_macros.h"
#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using client::Group;

// Messages of this size and of u8 look like control messages about messages of GPUs.
constexpr int64_t kControlSize = 16;

// Control messages go through the host's communicator, so the tests run on one host and on two.
class DeviceMessagesTest : public DeviceGroups, public ::testing::WithParamInterface<bool> {
 protected:
  void FormPair() {
    if (GetParam()) hosts_ = {"here", "there"};
    Form(Placement::kBoth, 2);
  }
  void RunWell(const std::function<absl::Status(Group&)>& body) {
    const std::vector<absl::Status> statuses = Run(body);
    for (size_t rank = 0; rank < statuses.size(); ++rank) {
      EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank];
    }
  }
};

client::CallOptions Within(absl::Duration timeout) {
  client::CallOptions options;
  options.timeout = timeout;
  return options;
}

TEST_P(DeviceMessagesTest, AHostMessageBeforeAGpuMessageIsNotTakenForIt) {
  FormPair();
  RunWell([](Group& group) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const Tensor device,
                            group.Allocate(DataType::kF32, {3}, group.device()));
    const Tensor host = Tensor::Zeros(DataType::kU8, {kControlSize});
    auto* const bytes = static_cast<uint8_t*>(host.data());
    const client::CallOptions soon = Within(absl::Seconds(20));
    if (group.rank() == 0) {
      std::fill_n(bytes, kControlSize, uint8_t{1});  // like the beginning of an offer
      std::fill_n(Floats(device), 3, 7.f);
      COHORT_RETURN_IF_ERROR(group.Send(host, 1, soon));
      return group.Send(device, 1, soon);
    }
    COHORT_RETURN_IF_ERROR(group.Receive(device, 0, soon));
    COHORT_RETURN_IF_ERROR(group.Receive(host, 0, soon));
    EXPECT_EQ(Floats(device)[2], 7);
    EXPECT_EQ(bytes[kControlSize - 1], 1);
    return absl::OkStatus();
  });
}

TEST_P(DeviceMessagesTest, AHostMessageIsAwaitedWhileAGpuMessageIsOffered) {
  FormPair();
  RunWell([](Group& group) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const Tensor device,
                            group.Allocate(DataType::kF32, {3}, group.device()));
    const Tensor host = Tensor::Zeros(DataType::kU8, {kControlSize});
    const client::CallOptions soon = Within(absl::Seconds(20));
    const int other = 1 - group.rank();
    if (group.rank() == 0) {
      COHORT_RETURN_IF_ERROR(group.Send(device, 1, soon));
      return group.Send(host, 1, soon);
    }
    const absl::StatusOr<MessageInfo> nobody =
        group.AwaitMessage(absl::MakeConstSpan(&other, 1), Within(absl::Milliseconds(200)));
    EXPECT_EQ(nobody.status().code(), absl::StatusCode::kDeadlineExceeded) << nobody.status();
    // A receive on the device does not take the host's message either.
    COHORT_RETURN_IF_ERROR(group.Receive(device, 0, soon));
    COHORT_ASSIGN_OR_RETURN(const MessageInfo first,
                            group.AwaitMessage(absl::MakeConstSpan(&other, 1), soon));
    EXPECT_EQ(first.peer, 0);
    EXPECT_EQ(first.type, DataType::kU8);
    EXPECT_EQ(first.count, kControlSize);
    return group.Receive(host, 0, soon);
  });
}

// Both directions, in a different order on each rank: no message waits for a later one.
TEST_P(DeviceMessagesTest, InAnyOrderEachComesAsItWasSent) {
  constexpr int kOfGpu = 40;
  constexpr int kOfHost = 120;
  // Few enough messages are on their way that no sender waits for room.
  constexpr int kAhead = 4;
  FormPair();
  RunWell([](Group& group) -> absl::Status {
    const int other = 1 - group.rank();
    const client::CallOptions soon = Within(absl::Seconds(50));
    std::mt19937 random(static_cast<unsigned>(group.rank()) + 11);
    COHORT_ASSIGN_OR_RETURN(const Tensor sent, group.Allocate(DataType::kF32, {3}, group.device()));
    COHORT_ASSIGN_OR_RETURN(const Tensor received,
                            group.Allocate(DataType::kF32, {3}, group.device()));
    const Tensor host = Tensor::Zeros(DataType::kU8, {kControlSize});
    auto* const bytes = static_cast<uint8_t*>(host.data());
    int sends = 0;
    int receives = 0;
    for (int step = 0; step < kOfGpu; ++step) {
      // `due` messages of the host are sent by the end of this step; `come` of them may be received
      // in it.
      const int due = (step + 1) * kOfHost / kOfGpu;
      const int come = std::max(step * kOfHost / kOfGpu, 0);
      const auto send_some = [&](int until) -> absl::Status {
        for (; sends < until; ++sends) {
          std::fill_n(bytes, kControlSize, static_cast<uint8_t>(sends % 3));
          COHORT_RETURN_IF_ERROR(group.Send(host, other, soon));
        }
        return absl::OkStatus();
      };
      const int before = sends + static_cast<int>(random() % 4);
      COHORT_RETURN_IF_ERROR(send_some(std::min(before, due)));
      *Floats(sent) = static_cast<float>(step);
      client::TensorTransfer transfers[] = {{true, other, sent}, {false, other, received}};
      if (random() % 2 == 0) std::swap(transfers[0], transfers[1]);
      COHORT_RETURN_IF_ERROR(group.Exchange(transfers, soon));
      EXPECT_EQ(*Floats(received), static_cast<float>(step));
      COHORT_RETURN_IF_ERROR(send_some(due));
      while (receives < come && (random() % 3 != 0 || sends - receives > kAhead)) {
        COHORT_RETURN_IF_ERROR(group.Receive(host, other, soon));
        EXPECT_EQ(bytes[kControlSize - 1], receives % 3) << receives;
        ++receives;
      }
    }
    for (; receives < kOfHost; ++receives) {
      COHORT_RETURN_IF_ERROR(group.Receive(host, other, soon));
      EXPECT_EQ(bytes[kControlSize - 1], receives % 3) << receives;
    }
    return absl::OkStatus();
  });
  ExpectSums(true);
  ExpectSums(false);
}

INSTANTIATE_TEST_SUITE_P(Ways, DeviceMessagesTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "Sockets" : "SharedMemory"; });

}  // namespace
}  // namespace cohort::worker
